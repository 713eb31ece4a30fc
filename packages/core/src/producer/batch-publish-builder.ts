import { Headers, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { type ArrowExpectation, checkArrowIpc } from "../codec/arrow-check.ts"
import type { Codec } from "../codec/codec.ts"
import { jsonBytes } from "../codec/json.ts"
import { type ContentType, mergeMetadata, type RecordMetadata } from "../record/metadata.ts"
import { indexed, type OutgoingRecord, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { DescribedBuilder, type Mutable } from "./described-builder.ts"
import type { SendBatchOptions } from "./producer.ts"
import { publishPrepared } from "./publish.ts"
import { withMetadata } from "./publish-builder.ts"
import { balanced, routeOf } from "./routing.ts"

/** A record of a batch with metadata of its own, which wins over the batch's. */
export interface BatchRecord extends OutgoingRecord {
  readonly metadata?: RecordMetadata
}

/** What `addArrowIpc` takes beside the bytes. */
export interface ArrowBatchRecord extends Omit<BatchRecord, "payload"> {
  /** What must be so, or the record is refused. */
  readonly expected?: ArrowExpectation
}

/**
 * Records collected on the client and sent together, in requests of 1,000 (table 1.12 of the options). What is set on the batch fills
 * what a record leaves open; index entries and headers of both are kept, and where a record has the same name its own wins. Nothing is
 * checked or sent before `send`.
 */
export class BatchPublishBuilder extends DescribedBuilder {
  readonly #client: ClientContext
  readonly #name: TopicName
  readonly #records: (() => BatchRecord)[] = []
  #route: Mutable<SendBatchOptions> = {}

  constructor(client: ClientContext, name: TopicName) {
    super()
    this.#client = client
    this.#name = name
  }

  /** How many records were added. */
  get count(): number {
    return this.#records.length
  }

  /** Adds bytes as they are, with what is the record's own; `null` is a tombstone. */
  add(payload: Uint8Array | null, record: Omit<BatchRecord, "payload"> = {}): this {
    return this.addLater(() => ({ ...record, payload }))
  }

  /** Adds a record with what is its own; a key or partition of its own takes it out of the batch's routing. */
  addRecord(record: BatchRecord): this {
    return this.addLater(() => record)
  }

  /** Adds a value as JSON text in UTF-8, with content type `json`. A value that JSON cannot hold is refused by `send`. */
  addJson(value: unknown, record: Omit<BatchRecord, "payload"> = {}): this {
    return this.addLater(() => ({ ...record, payload: jsonBytes(value), metadata: typed("json", record.metadata) }))
  }

  /** Adds a value that a codec encodes, with the codec's content type where it has one. */
  addEncoded<T>(value: T, codec: Codec<T>, record: Omit<BatchRecord, "payload"> = {}): this {
    return this.addLater(() => ({
      ...record,
      payload: codec.encode(value),
      metadata: typed(codec.contentType, record.metadata),
    }))
  }

  /**
   * Adds one whole Arrow IPC stream or file, with content type `arrow` and the fingerprint of its schema. A fingerprint in `expected`
   * or in the record's metadata is compared with it. The fingerprint of another kind, as a registry's own, goes with `addRecord`,
   * which does not look into the payload.
   */
  addArrowIpc(bytes: Uint8Array, record: ArrowBatchRecord = {}): this {
    const { expected, ...own } = record
    return this.addLater(() => {
      const declared = own.metadata?.schemaFingerprint
      const { schemaFingerprint } = checkArrowIpc(bytes, expected)
      if (declared !== undefined) checkArrowIpc(bytes, { schemaFingerprint: declared })
      return { ...own, payload: bytes, metadata: { ...own.metadata, contentType: "arrow", schemaFingerprint } }
    })
  }

  /** Adds bytes, tombstones and records, in their order. */
  extend(records: Iterable<Uint8Array | null | BatchRecord>): this {
    for (const record of records) {
      if (record === null || record instanceof Uint8Array) this.add(record)
      else this.addRecord(record)
    }
    return this
  }

  /** `addJson` for each value. */
  extendJson(values: Iterable<unknown>): this {
    for (const value of values) this.addJson(value)
    return this
  }

  /** `addEncoded` for each value. */
  extendEncoded<T>(values: Iterable<T>, codec: Codec<T>): this {
    for (const value of values) this.addEncoded(value, codec)
    return this
  }

  /** Routes all records by this key, which is stored with them. Not together with `partition`; neither: in balance. */
  key(key: Uint8Array | string): this {
    this.#route.key = key
    return this
  }

  /** Sends all records to this partition. Not together with `key`. */
  partition(partition: number): this {
    this.#route.partition = partition
    return this
  }

  /**
   * Sends what was added and waits for the confirmations, within the connection's publish timeout and retries. No records: no request,
   * no confirmations.
   * @throws InvalidError, RecordTooLargeError that name the record as `record #i`, before anything is sent; NotFoundError,
   *   PublishFailedError, ClosedError
   */
  async send(): Promise<SendResult> {
    const route = routeOf(this.#route, balanced, this.#client.session.manifest.limits)
    const records = this.#records.map((record, index) => indexed(index, () => this.#prepare(record())))
    return await publishPrepared(this.#client, this.#name, { records, route })
  }

  /** Adds a record that is made by `send`. */
  protected addLater(record: () => BatchRecord): this {
    this.#records.push(record)
    return this
  }

  #prepare(record: BatchRecord): SendableRecord {
    // Whatever it is, prepareRecord says what a record must be.
    const { metadata, ...own } = record ?? {}
    const ownHeaders = Headers.from(own.headers)
    const headers = [...this.ownHeaders.filter(([name]) => !ownHeaders.has(name)), ...ownHeaders]
    const prepared = prepareRecord({ ...own, headers }, this.#client.session.manifest.limits)
    return withMetadata(prepared, mergeMetadata(this.metadata, metadata ?? {}), this.#client)
  }
}

/** A record's metadata, with this content type unless it has one of its own. */
function typed(contentType: ContentType | undefined, metadata: RecordMetadata | undefined): RecordMetadata {
  return { ...(contentType === undefined ? {} : { contentType }), ...metadata }
}
