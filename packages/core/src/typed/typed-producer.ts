import { InvalidError, MillraceError, RecordTooLargeError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { SendResult } from "../producer/confirmation.ts"
import type { Delivery, DeliveryHandle } from "../producer/delivery-call.ts"
import type { Producer, SendBatchOptions, TopicRef } from "../producer/producer.ts"
import type { ShutdownOptions } from "../producer/sending-end.ts"
import type { ProducerStatistics } from "../producer/statistics.ts"
import { indexed, type OutgoingRecord } from "../record/outgoing-record.ts"
import type { Spool } from "../spool/spool.ts"
import type { RecordEncoder, TypedRecord, TypedSendOptions } from "./record-encoder.ts"

/**
 * A producer of values (seed 002, "Typed publisher"): each is encoded when it is given, and goes the way of any record of the producer behind
 * it, with the same order, retries, background mode and spool. `null` is a tombstone: the codec does not see it (case A-17).
 *
 * A value without an encoding is an InvalidError of its own send; nothing of that call is sent, and what was sent before is not touched.
 */
export class TypedProducer<T> implements AsyncDisposable {
  readonly #producer: Producer
  readonly #encoder: RecordEncoder<T>

  /** Made by `TypedTopic.producer`. */
  constructor(producer: Producer, encoder: RecordEncoder<T>) {
    this.#producer = producer
    this.#encoder = encoder
  }

  /** As `Producer.init`. */
  init(): Promise<void> {
    return this.#producer.init()
  }

  /** Sends one value. @throws InvalidError when it has no encoding; else as `Producer.send` */
  send(value: T | null, options?: TypedSendOptions): Promise<SendResult> {
    try {
      const payload = this.#encoder.payload(value)
      return this.#producer.send(payload, this.#encoder.options(payload, options))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Sends values in order. `sendRecords` takes keys and the like.
   * @throws InvalidError that names the value as `record #i`, and then nothing of the call is sent; else as `Producer.sendBatch`
   */
  sendBatch(values: readonly (T | null)[], options?: SendBatchOptions): Promise<SendResult> {
    return this.#sendAll(values, options, (value) => this.#encoder.bare(value))
  }

  /** Sends values in order, each with a key, a partition, headers, an id, a time or metadata of its own. @throws as `sendBatch` */
  sendRecords(records: readonly TypedRecord<T>[], options?: SendBatchOptions): Promise<SendResult> {
    return this.#sendAll(records, options, (record) => this.#encoder.record(record))
  }

  /** `send` to another topic, with this producer's codec and settings. */
  sendTo(topic: TopicRef, value: T | null, options?: TypedSendOptions): Promise<SendResult> {
    try {
      const payload = this.#encoder.payload(value)
      return this.#producer.sendTo(topic, payload, this.#encoder.options(payload, options))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Sends one value, and settles with where it was stored. @throws as `send`; else as `Producer.sendAndConfirm` */
  sendAndConfirm(value: T | null, options?: TypedSendOptions): Promise<Delivery> {
    try {
      const payload = this.#encoder.payload(value)
      return this.#producer.sendAndConfirm(payload, this.#encoder.options(payload, options))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Accepts one value with what is its record's own. @throws as `send`; else as `Producer.enqueue` */
  async enqueue(record: TypedRecord<T>): Promise<DeliveryHandle> {
    return await this.#producer.enqueue(this.#encoder.record(record))
  }

  /** As `Producer.flush`. */
  flush(): Promise<void> {
    return this.#producer.flush()
  }

  /** The same as `flush`. */
  waitUntilAllSends(): Promise<void> {
    return this.#producer.waitUntilAllSends()
  }

  /** As `Producer.shutdown`. */
  shutdown(options?: ShutdownOptions): Promise<void> {
    return this.#producer.shutdown(options)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#producer[Symbol.asyncDispose]()
  }

  get statistics(): ProducerStatistics {
    return this.#producer.statistics
  }

  /** Of a background producer with `spool`; absent otherwise. */
  get spool(): Spool | undefined {
    return this.#producer.spool
  }

  #sendAll<V>(
    values: readonly V[],
    options: SendBatchOptions | undefined,
    record: (value: V) => Uint8Array | OutgoingRecord,
  ): Promise<SendResult> {
    try {
      if (!Array.isArray(values)) throw new InvalidError(`values must be an array, not ${shown(values)}`)
      const records = new Array<Uint8Array | OutgoingRecord>(values.length)
      for (let index = 0; index < values.length; index++)
        records[index] = numbered(index, () => record(values[index] as V))
      return this.#producer.sendBatch(records, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }
}

/** Says which value it was that has no encoding. What is no fault of a value stays as it is. */
function numbered<R>(index: number, make: () => R): R {
  try {
    return make()
  } catch (error) {
    const ofValue =
      !(error instanceof MillraceError) || error instanceof InvalidError || error instanceof RecordTooLargeError
    if (!ofValue) throw error
    return indexed(index, () => {
      throw error
    })
  }
}
