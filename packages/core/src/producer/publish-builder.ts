import { InvalidError, type MessageId, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { type ArrowExpectation, checkArrowIpc } from "../codec/arrow-check.ts"
import { jsonBytes } from "../codec/json.ts"
import { checkInlinePayload, metadataHeaders, type RecordMetadata } from "../record/metadata.ts"
import { type OutgoingRecord, type PreparedRecord, prepareRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { DescribedBuilder, type Mutable } from "./described-builder.ts"
import { publishRecord } from "./publish.ts"

/**
 * One record, piece by piece: `topic.publish().json({ id: 7 }).key("7").send()`. A later call of the same piece replaces the earlier
 * one; headers and index entries add up. Values are checked by `send`.
 */
export class PublishBuilder extends DescribedBuilder {
  readonly #client: ClientContext
  readonly #name: TopicName
  #record: Partial<Mutable<OutgoingRecord>> = {}

  constructor(client: ClientContext, name: TopicName) {
    super()
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

  /**
   * One whole Arrow IPC stream or file as the payload, with content type `arrow` and its schema's fingerprint.
   * @param expected What must be so; `schemaFingerprint` says that the schema is the one that was agreed on.
   * @throws InvalidError for bytes that are not whole, or differ from what is expected
   */
  arrowIpc(bytes: Uint8Array, expected?: ArrowExpectation): this {
    this.metadata.schemaFingerprint = checkArrowIpc(bytes, expected).schemaFingerprint
    this.#record.payload = bytes
    return this.contentType("arrow")
  }

  /** 32 bytes, unchecked: of a registry's own kind, or of bytes that `arrowIpc` did not see. Only with content type `arrow`. */
  schemaFingerprint(bytes: Uint8Array): this {
    this.metadata.schemaFingerprint = bytes
    return this
  }

  correlation(id: string): this {
    this.metadata.correlation = id
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
      { ...this.#record, payload, headers: this.ownHeaders },
      this.#client.session.manifest.limits,
    )
    const record = withMetadata(own, this.metadata, this.#client)
    return await publishRecord(this.#client, this.#name, record)
  }
}

/** The record with its metadata as reserved headers behind its own. @throws InvalidError, RecordTooLargeError */
export function withMetadata(record: PreparedRecord, metadata: RecordMetadata, client: ClientContext): PreparedRecord {
  checkInlinePayload(record.payload, metadata)
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
