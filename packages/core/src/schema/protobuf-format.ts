import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { Protobuf } from "../codec/protobuf.ts"
import type { ProtobufType } from "../codec/protobuf-library.ts"
import { protobufIncompatibilities } from "./protobuf-compatibility.ts"
import { type ProtobufSchema, parseProtobuf } from "./protobuf-schema.ts"
import type { ProtobufMessage } from "./protobuf-type.ts"
import type { FormatCodec, SchemaFormat } from "./schema-format.ts"

/** Protobuf: payloads are read by the reader's message whoever wrote them, field by field number. */
export const protobufFormat: SchemaFormat = {
  contentType: "protobuf",
  check: (schema) => void parseProtobuf(schema),
  incompatibilities: (reader, writer) => {
    const own = parseProtobuf(reader)
    return protobufIncompatibilities((name) => messageAt(own, name), parseProtobuf(writer).messages)
  },
  codec: (schema, options): FormatCodec => {
    const parsed = parseProtobuf(schema)
    const name = options.message ?? first(parsed)
    const codec = new Protobuf<unknown>(typeOf(parsed, name))
    const decode = (payload: Uint8Array): unknown => codec.decode(payload)
    return {
      encode: (value) => codec.encode(value),
      decode,
      messageIndex: parsed.places.get(name),
      reads: (writer) => ({ decode, messageIndex: parseProtobuf(writer).places.get(name) }),
    }
  },
}

function first({ messages }: ProtobufSchema): string {
  for (const name of messages.keys()) return name
  throw new InvalidError("the Protobuf schema has no message")
}

function typeOf({ messages }: ProtobufSchema, name: string): ProtobufType {
  const message = messages.get(name)
  if (message !== undefined) return message as unknown as ProtobufType
  const known = [...messages.keys()].map(shown).join(", ")
  throw new InvalidError(`the Protobuf schema has no message ${shown(name)}; its messages are ${known}`)
}

function messageAt({ root }: ProtobufSchema, name: string): ProtobufMessage | undefined {
  const found = root.lookup(`.${name}`)
  return found !== null && "fieldsArray" in found ? (found as ProtobufMessage) : undefined
}
