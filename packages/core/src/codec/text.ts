import { DecodeError, InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { Codec } from "./codec.ts"
import { utf8TextWithMark } from "./utf8.ts"

/**
 * Text as UTF-8, in both directions every character as it is: no byte order mark is dropped, and half a surrogate pair or bytes that
 * are not UTF-8 are errors. Without a content type, since table 1.11 has none for text.
 */
export const text: Codec<string> = {
  name: "text",
  encode(value: string): Uint8Array {
    if (typeof value !== "string") throw new InvalidError(`the text codec takes a string, not ${shown(value)}`)
    if (!value.isWellFormed())
      throw new InvalidError(`the text codec has no form for a string with half a surrogate pair`)
    return utf8.encode(value)
  },
  decode(payload: Uint8Array): string {
    try {
      return utf8TextWithMark(payload)
    } catch (cause) {
      throw new DecodeError("the bytes are not UTF-8", { cause })
    }
  },
}

const utf8 = new TextEncoder()
