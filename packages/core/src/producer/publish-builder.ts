import {
  Headers,
  type HeadersInit,
  type HeaderValue,
  InvalidError,
  type MessageId,
  type TopicName,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { shown } from "../client/options.ts"
import { type ContentType, metadataHeaders, type RecordMetadata } from "../record/metadata.ts"
import { type OutgoingRecord, type PreparedRecord, prepareRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { publishPrepared } from "./publish.ts"
import { balanced } from "./routing.ts"

const utf8 = new TextEncoder()

/**
 * One record, piece by piece: `topic.publish().json({ id: 7 }).key("7").send()`. A later call of the same piece replaces the earlier
 * one; headers and index entries add up. Values are checked by `send`.
 */
export class PublishBuilder {
  readonly #client: ClientContext
  readonly #name: TopicName
  #record: Partial<Mutable<OutgoingRecord>> = {}
  #headers: (readonly [string, HeaderValue | string])[] = []
  #metadata: Mutable<RecordMetadata> = {}

  constructor(client: ClientContext, name: TopicName) {
    this.#client = client
    this.#name = name
  }

  /** The bytes as they are; `null` is a tombstone. */
  payload(bytes: Uint8Array | null): this {
    this.#record.payload = bytes
    return this
  }

  /** The value as JSON text in UTF-8, with content type `json`. @throws InvalidError for what JSON cannot hold */
  json(value: unknown): this {
    this.#record.payload = jsonBytes(value)
    return this.contentType("json")
  }

  /** Adds one header; a name may repeat. A bare string is short for `HeaderValue.string`. */
  header(name: string, value: HeaderValue | string): this {
    this.#headers.push([name, value])
    return this
  }

  /** Adds headers in their order. @throws InvalidError for names and values that cannot be headers */
  headers(init: HeadersInit): this {
    for (const entry of Headers.from(init)) this.#headers.push(entry)
    return this
  }

  /** Routes the record by its key, which is stored with it. Not together with `partition`. */
  key(key: Uint8Array | string): this {
    this.#record.key = key
    return this
  }

  partition(partition: number): this {
    this.#record.partition = partition
    return this
  }

  /** The record's own id, instead of one derived from its batch. */
  id(id: MessageId): this {
    this.#record.id = id
    return this
  }

  /** The sender's time, in µs since 1970. */
  timestampMicros(micros: bigint): this {
    this.#record.timestampMicros = micros
    return this
  }

  contentType(contentType: ContentType): this {
    this.#metadata.contentType = contentType
    return this
  }

  schemaId(schemaId: number): this {
    this.#metadata.schemaId = schemaId
    return this
  }

  /** 32 bytes; only with content type `arrow`. */
  schemaFingerprint(bytes: Uint8Array): this {
    this.#metadata.schemaFingerprint = bytes
    return this
  }

  /** Adds one index entry, at most 32. */
  index(key: string, value: string): this {
    this.#metadata.index = { ...this.#metadata.index, [key]: value }
    return this
  }

  inlinePayload(inline: boolean): this {
    this.#metadata.inlinePayload = inline
    return this
  }

  projectionRef(reference: string): this {
    this.#metadata.projectionRef = reference
    return this
  }

  correlation(id: string): this {
    this.#metadata.correlation = id
    return this
  }

  /**
   * Sends the record and waits for its confirmation, within the connection's publish timeout and retries.
   * @throws InvalidError, RecordTooLargeError before anything is sent; NotFoundError, PublishFailedError, ClosedError
   */
  async send(): Promise<SendResult> {
    const { payload } = this.#record
    if (payload === undefined)
      throw new InvalidError("publish() needs a payload: call payload() or json() before send()")
    const own = prepareRecord(
      { ...this.#record, payload, headers: this.#headers },
      this.#client.session.manifest.limits,
    )
    const record = withMetadata(own, this.#metadata, this.#client)
    return await publishPrepared(this.#client, this.#name, { records: [record], route: balanced })
  }
}

/** The record with its metadata as reserved headers behind its own. @throws InvalidError, RecordTooLargeError */
export function withMetadata(record: PreparedRecord, metadata: RecordMetadata, client: ClientContext): PreparedRecord {
  const extra = metadataHeaders(metadata)
  if (extra.length === 0) return record
  const headers = [...record.headers, ...extra]
  const { key, partition, id, timestampMicros, payload } = record
  const whole = {
    payload,
    headers,
    ...(key === null ? {} : { key }),
    ...(partition === -1 ? {} : { partition }),
    ...(id === undefined ? {} : { id }),
    ...(timestampMicros === undefined ? {} : { timestampMicros }),
  }
  return prepareRecord(whole, client.session.manifest.limits, { resend: true })
}

/** @throws InvalidError for what JSON cannot hold: functions, `undefined`, bigints, cycles */
export function jsonBytes(value: unknown): Uint8Array {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (error) {
    throw new InvalidError(
      `the value cannot be written as JSON: ${error instanceof Error ? error.message : shown(error)}`,
      {
        cause: error,
      },
    )
  }
  if (text === undefined) throw new InvalidError(`the value cannot be written as JSON: it is ${shown(value)}`)
  return utf8.encode(text)
}

/** The same keys without `readonly`, for builders that fill an object step by step. */
export type Mutable<T> = { -readonly [K in keyof T]: T[K] }
