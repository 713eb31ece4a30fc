import { DecodeError, type HeaderValue, NotFoundError } from "@millrace/contract"
import { type Clock, systemClock } from "@millrace/runtime"
import { OptionReader, shown } from "../client/options.ts"
import type { Codec, CodecRecord } from "../codec/codec.ts"
import type { ContentType, RecordMetadata } from "../record/metadata.ts"
import { reservedPrefix } from "../record/outgoing-record.ts"
import { formatOf } from "./formats.ts"
import { frame, framedId, framedMessage } from "./frame.ts"
import { resolveSchema } from "./resolution.ts"
import type { SchemaFraming, SchemaRegistry, SchemaType } from "./schema.ts"
import type { FormatCodec, FormatReader } from "./schema-format.ts"
import { checkSchemaId } from "./state-records.ts"
import { WriterSchemas } from "./writer-schemas.ts"

/** How values of a schema are written and read. Unknown keys are refused. */
export interface SchemaCodecOptions {
  /** The full name of the message of a Protobuf schema: `shop.Order`. Default: the first of its file. */
  readonly message?: string
  /** How records carry the id. Default: as the registry has it, in the header for `client.schemas`. */
  readonly framing?: SchemaFraming
}

/**
 * A codec for values of a registered schema, for `topic.typed(codec)`; `topic.schema(id)` is the short way. It encodes with this schema and
 * says so in each record. It decodes by the schema that the record names, as a value of this one.
 * @throws NotFoundError that names the id, InvalidError for the options, UnsupportedError when the format's library is not installed, and
 *   what keeps the registry from answering
 */
export async function schemaCodec(
  registry: SchemaRegistry,
  id: number,
  options?: SchemaCodecOptions,
): Promise<Codec<unknown>> {
  return await openSchemaCodec({ registry, clock: systemClock }, id, options)
}

/** `schemaCodec` with a clock, by which answers that a schema is missing grow old. */
export async function openSchemaCodec(
  { registry, clock }: { readonly registry: SchemaRegistry; readonly clock: Clock },
  id: number,
  options?: SchemaCodecOptions,
): Promise<Codec<unknown>> {
  const read = new OptionReader<SchemaCodecOptions>("schema", options, ["message", "framing"])
  const framing = read.choice("framing", ["header", "confluent"], registry.framing)
  const { type, ...schema } = await registry.get(checkSchemaId(id))
  const codec = formatOf(type).codec(await resolveSchema(registry, { type, ...schema }), {
    message: options?.message,
  })
  const own = { id, type, codec }
  return new SchemaCodec(own, framing, new WriterSchemas(registry, clock, own))
}

const typeTexts: Readonly<Record<SchemaType, string>> = {
  avro: "Avro",
  "json-schema": "JSON Schema",
  protobuf: "Protobuf",
}

/** The number of a content type that says nothing definite (table 1.11). */
const anyContent = 255
const contentNumbers: Readonly<Record<SchemaType, number>> = { "json-schema": 1, avro: 5, protobuf: 6 }
const idHeader = `${reservedPrefix}sid`
const contentHeader = `${reservedPrefix}ct`

class SchemaCodec implements Codec<unknown> {
  readonly name: string
  readonly contentType?: ContentType
  readonly #type: SchemaType
  readonly #codec: FormatCodec
  readonly #writers: WriterSchemas
  /** What comes before a payload; absent where the header tells the id. */
  readonly #frame: Uint8Array | undefined
  readonly #metadata: Pick<RecordMetadata, "schemaId">

  constructor(
    { id, type, codec }: { readonly id: number; readonly type: SchemaType; readonly codec: FormatCodec },
    framing: SchemaFraming,
    writers: WriterSchemas,
  ) {
    this.name = `schema ${id} (${typeTexts[type]})`
    this.#type = type
    this.#codec = codec
    this.#writers = writers
    this.#frame = framing === "header" ? undefined : frame(id, codec.messageIndex)
    this.#metadata = framing === "header" ? { schemaId: id } : {}
    if (framing === "header") this.contentType = formatOf(type).contentType
  }

  encode(value: unknown): Uint8Array {
    const body = this.#codec.encode(value)
    if (this.#frame === undefined) return body
    const payload = new Uint8Array(this.#frame.length + body.length)
    payload.set(this.#frame)
    payload.set(body, this.#frame.length)
    return payload
  }

  describe(): Pick<RecordMetadata, "schemaId"> {
    return this.#metadata
  }

  /**
   * @throws NotFoundError that names a schema that the registry does not have, InvalidError for one that cannot be read as this one,
   *   DecodeError for a record that does not tell its schema as it should, and as the format's codec
   */
  decode(payload: Uint8Array, record?: CodecRecord): unknown {
    if (this.#frame === undefined) {
      const id = record === undefined ? undefined : this.#headerId(record)
      return (id === undefined ? this.#codec : this.#writers.reader(id)).decode(payload)
    }
    const id = framedId(payload)
    const reader = this.#writers.reader(id)
    if (this.#type !== "protobuf") return reader.decode(payload.subarray(this.#frame.length))
    return this.#framedMessage(payload, id, reader)
  }

  prepare(records: Iterable<CodecRecord>, options?: { readonly signal?: AbortSignal }): Promise<void> | undefined {
    let missing: Set<number> | undefined
    for (const record of records) {
      const id = this.#idOf(record)
      if (id !== undefined && !this.#writers.has(id)) {
        missing ??= new Set()
        missing.add(id)
      }
    }
    return missing === undefined ? undefined : this.#writers.fetch(missing, options?.signal)
  }

  /** The id that a record names; what is wrong with it is for `decode` to say. */
  #idOf(record: CodecRecord): number | undefined {
    const { payload } = record
    if (payload === null) return undefined
    try {
      return this.#frame === undefined ? this.#headerId(record) : framedId(payload)
    } catch {
      return undefined
    }
  }

  /** A record without the header is taken to be of this schema. */
  #headerId(record: CodecRecord): number | undefined {
    const { headers } = record
    const { headersError } = record as { readonly headersError?: Error | undefined }
    if (headersError !== undefined) throw headersError
    let id: number | undefined
    for (const [name, value] of headers) {
      if (name === idHeader) id ??= this.#number(name, value, "uint32")
      else if (name === contentHeader) this.#checkContent(this.#number(name, value, "uint8"))
    }
    return id
  }

  #checkContent(content: number): void {
    if (content === contentNumbers[this.#type] || content === anyContent) return
    throw new DecodeError(
      `the record's content type is ${content}, and that of ${typeTexts[this.#type]} is ${contentNumbers[this.#type]}`,
    )
  }

  #number(name: string, value: HeaderValue, kind: "uint8" | "uint32"): number {
    const { bytes } = value
    if (value.kind === kind) {
      return kind === "uint8"
        ? (bytes[0] as number)
        : ((bytes[0] as number) |
            ((bytes[1] as number) << 8) |
            ((bytes[2] as number) << 16) |
            ((bytes[3] as number) << 24)) >>>
            0
    }
    throw new DecodeError(`the header ${shown(name)} is a ${value.kind}, not a ${kind}`)
  }

  #framedMessage(payload: Uint8Array, id: number, reader: FormatReader): unknown {
    const { messageIndex, start } = framedMessage(payload)
    const expected = reader.messageIndex
    if (expected === undefined) {
      throw new NotFoundError(
        `schema id ${id}, which the record names, does not have the message that ${this.name} reads`,
      )
    }
    if (messageIndex.length !== expected.length || messageIndex.some((place, step) => place !== expected[step])) {
      throw new DecodeError(
        `the record is of the message at ${messageIndex.join(".")} of schema ${id}, and the one that is read is at ${expected.join(".")}`,
      )
    }
    return reader.decode(payload.subarray(start))
  }
}
