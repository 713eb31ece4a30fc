import { Headers, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { mergeMetadata, type RecordMetadata } from "../record/metadata.ts"
import { indexed, type OutgoingRecord, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { DescribedBuilder, type Mutable } from "./described-builder.ts"
import type { SendBatchOptions } from "./producer.ts"
import { publishPrepared } from "./publish.ts"
import { jsonBytes, withMetadata } from "./publish-builder.ts"
import { balanced, routeOf } from "./routing.ts"

/** A record of a batch with metadata of its own, which wins over the batch's. */
export interface BatchRecord extends OutgoingRecord {
  readonly metadata?: RecordMetadata
}

/**
 * Records collected on the client and sent together, in requests of 1,000 (table 1.12 of the options). What is set on the batch fills
 * what a record leaves open; headers and index entries of both are kept, the record's last. Nothing is sent before `send`.
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

  /** Adds bytes as they are; `null` is a tombstone. */
  add(payload: Uint8Array | null): this {
    return this.#add(() => ({ payload }))
  }

  /** Adds a record with what is its own; a key or partition of its own takes it out of the batch's routing. */
  addRecord(record: BatchRecord): this {
    return this.#add(() => record)
  }

  /** Adds a value as JSON text in UTF-8, with content type `json`. A value that JSON cannot hold is refused by `send`. */
  addJson(value: unknown, record: Omit<BatchRecord, "payload"> = {}): this {
    return this.#add(() => ({
      ...record,
      payload: jsonBytes(value),
      metadata: { contentType: "json", ...record.metadata },
    }))
  }

  /** Routes all records by this key, which is stored with them. Not together with `partition`; neither: in balance. */
  key(key: Uint8Array | string): this {
    this.#route.key = key
    return this
  }

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

  #add(record: () => BatchRecord): this {
    this.#records.push(record)
    return this
  }

  #prepare(record: BatchRecord): SendableRecord {
    const { metadata, ...own } = record
    const headers = [...this.ownHeaders, ...Headers.from(own.headers)]
    const prepared = prepareRecord({ ...own, headers }, this.#client.session.manifest.limits)
    return withMetadata(prepared, mergeMetadata(this.metadata, metadata ?? {}), this.#client)
  }
}
