/**
 * Options of streams, topics and users: text keys with typed values (iggy-wire.md: Shared encodings, Topic options). The kinds of the values are those of header
 * values, so they are `HeaderValue`s.
 */
import { HeaderValue, headerKindCodes, InvalidError } from "@millrace/contract"
import { type Codec, sized32 } from "../wire/codec.ts"

/** In order; no key twice. */
export type Options = readonly (readonly [key: string, value: HeaderValue])[]

/** Limits of one block (iggy-wire.md: Shared encodings). */
const mostEntries = 1024
const mostBytes = 100_000
const textKind = headerKindCodes.string

/** A block that runs to the end of the body, as requests have it. */
export const optionsToEnd: Codec<Options> = {
  write(writer, options) {
    const from = writer.length
    if (options.length > mostEntries)
      throw new InvalidError(`${options.length} options are given: at most ${mostEntries}`)
    for (const [key, value] of options) {
      const keyBytes = Buffer.from(key, "utf8")
      writeField(keyBytes, textKind)
      writeField(value.bytes, headerKindCodes[value.kind])
    }
    if (writer.length - from > mostBytes)
      throw new InvalidError(`options of ${writer.length - from} bytes are given: at most ${mostBytes}`)
    function writeField(bytes: Uint8Array, kind: number): void {
      if (bytes.length < 1 || bytes.length > 255)
        throw new InvalidError(`an option's key or value has ${bytes.length} bytes: Apache Iggy takes 1 to 255`)
      writer.u8(kind)
      writer.u32(bytes.length)
      writer.raw(bytes)
    }
  },
  read(reader) {
    const options: (readonly [string, HeaderValue])[] = []
    while (reader.left > 0) {
      if (options.length === mostEntries) reader.fail(`has more than ${mostEntries} options`)
      const keyKind = reader.u8()
      if (keyKind !== textKind) reader.fail(`has ${keyKind} for the kind of an option's key`)
      const key = reader.text(reader.u32())
      const kind = reader.u8()
      options.push([key, HeaderValue.fromBytes(kind, reader.raw(reader.u32()))])
    }
    return options
  },
}

/** A block with its length before it, as replies have it. */
export const options32: Codec<Options> = sized32(optionsToEnd)

/** The value of a key in JavaScript's terms, or `undefined` where it is not there. */
export function optionValue(options: Options, key: string): HeaderValue["value"] | undefined {
  return options.find(([known]) => known === key)?.[1].value
}
