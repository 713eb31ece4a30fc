import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { Codec } from "./codec.ts"

/**
 * Bytes as they are, with the content type `raw`. Both directions copy: what is sent may be written over afterwards, and what is read
 * stays as it is when the buffer that it came in is used again. The payload of a message is the same bytes without the copy.
 */
export const bytes: Codec<Uint8Array> = {
  name: "bytes",
  contentType: "raw",
  encode(value: Uint8Array): Uint8Array {
    if (!(value instanceof Uint8Array))
      throw new InvalidError(`the bytes codec takes a Uint8Array, not ${shown(value)}`)
    return new Uint8Array(value)
  },
  decode(payload: Uint8Array): Uint8Array {
    return new Uint8Array(payload)
  },
}
