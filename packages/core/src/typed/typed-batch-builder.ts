import type { TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { BatchPublishBuilder, type BatchRecord } from "../producer/batch-publish-builder.ts"
import type { RecordEncoder } from "./record-encoder.ts"

/**
 * Values collected on the client and sent together (table 1.12 of the options), with everything that a batch of bytes can say. Nothing is
 * encoded before `send`, which names a value that has no encoding as `record #i`.
 */
export class TypedBatchBuilder<T> extends BatchPublishBuilder {
  readonly #encoder: RecordEncoder<T>

  constructor(client: ClientContext, name: TopicName, encoder: RecordEncoder<T>) {
    super(client, name)
    this.#encoder = encoder
  }

  /** Adds a value with what is its record's own; `null` is a tombstone. */
  addValue(value: T | null, record: Omit<BatchRecord, "payload"> = {}): this {
    return this.addLater(() => {
      const payload = this.#encoder.payload(value)
      const { metadata, ...own } = record
      return { ...own, payload, metadata: { ...this.#encoder.metadata(payload), ...metadata } }
    })
  }

  /** `addValue` for each value. */
  extendValues(values: Iterable<T | null>): this {
    for (const value of values) this.addValue(value)
    return this
  }
}
