import type { Headers, HeadersInit } from "@millrace/contract"
import { InvalidError, type Manifest, type MessageId, type TopicName } from "@millrace/contract"
import { checkName } from "../client/names.ts"
import { OptionReader, shown } from "../client/options.ts"
import {
  checkPayload,
  type OutgoingRecord,
  prepareFields,
  prepareRecord,
  prepareRecords,
  type SendableRecord,
} from "../record/outgoing-record.ts"
import type { Spool } from "../spool/spool.ts"
import type { SendResult } from "./confirmation.ts"
import type { Delivery, DeliveryHandle } from "./delivery-call.ts"
import { type PooledBatch, PooledContent } from "./pooled-batch.ts"
import { type Route, routeOf } from "./routing.ts"
import type { ShutdownOptions } from "./sending-end.ts"
import type { ProducerStatistics } from "./statistics.ts"

/** What one send may say about its record. `key` and `partition` override the producer's routing and exclude each other. */
export interface SendOptions {
  readonly key?: Uint8Array | string
  readonly partition?: number
  readonly headers?: HeadersInit
  readonly id?: MessageId
  readonly timestampMicros?: bigint
}

/** Routing of a batch, for all records that have no key or partition of their own. */
export interface SendBatchOptions {
  readonly key?: Uint8Array | string
  readonly partition?: number
}

/**
 * A long-lived producer. Several sends may be under way; for each partition they are stored in the order of the calls. Bytes are read
 * until the send settles: do not change them before.
 *
 * A direct producer (the default) settles a send when the backend has confirmed it; sends that are not awaited share requests. A
 * background producer settles it when its queue has accepted it, without confirmations; what fails later goes to `onError`, or is kept
 * for `shutdown()`.
 */
export interface Producer extends AsyncDisposable {
  /** Prepares the topic, created where it is missing and may be. Sends do this by themselves. @throws NotFoundError … */
  init(): Promise<void>
  /**
   * Sends one record; `null` is a tombstone.
   * @throws InvalidError, RecordTooLargeError before anything is sent; NotFoundError when the topic is not there, and whatever else
   *   keeps it from being prepared, as it is; PublishFailedError once records were tried, when the retries are used up or the failure
   *   is lasting; ClosedError after shutdown
   */
  send(payload: Uint8Array | null, options?: SendOptions): Promise<SendResult>
  /**
   * `sendBatch` for a batch of `topic.batchBuilder()`. The batch is taken over: its buffers go back to the pool however this ends, and
   * using it again is refused.
   * @throws InvalidError when the batch was sent or disposed before; else as `sendBatch`
   */
  send(batch: PooledBatch, options?: SendBatchOptions): Promise<SendResult>
  /**
   * Sends records in order, in requests of `batchLength`, each with its own retries; a failed request stops those behind it. No
   * records: no request.
   * @throws as `send`; a record that is refused is named by its index, and then nothing is sent
   */
  sendBatch(
    records: readonly (Uint8Array | OutgoingRecord)[] | PooledBatch,
    options?: SendBatchOptions,
  ): Promise<SendResult>
  /** `send` to another topic, with this producer's settings. */
  sendTo(topic: TopicRef, payload: Uint8Array | null, options?: SendOptions): Promise<SendResult>
  /**
   * Sends one record, and settles with where it was stored. The way of a background producer to hear of single records; what fails
   * rejects here and goes nowhere else.
   * @throws as `enqueue` before the record is accepted; PublishFailedError with the record and the cause from then on
   */
  sendAndConfirm(payload: Uint8Array | null, options?: SendOptions): Promise<Delivery>
  /**
   * Accepts one record, waiting for room as `failureMode` says, and answers a handle for its delivery (seed 004, `enqueue`).
   * @throws what is known before the record is accepted: InvalidError, RecordTooLargeError, BufferFullError, ClosedError
   */
  enqueue(record: OutgoingRecord): Promise<DeliveryHandle>
  /** Settles when every send that was called before is confirmed or has failed. What lingers goes out at once. */
  flush(): Promise<void>
  /** The same as `flush`. */
  waitUntilAllSends(): Promise<void>
  /**
   * Takes no more sends and waits for those before. A second call awaits the first.
   * @throws TimeoutError at the deadline; it names how many records are not confirmed, and their sends reject too.
   *   PublishFailedError of a background producer with the records of all failures that no `onError` took
   */
  shutdown(options?: ShutdownOptions): Promise<void>
  readonly statistics: ProducerStatistics
  /** Of a background producer with `spool`; absent otherwise. */
  readonly spool?: Spool
}

/** A topic by its handle. */
export interface TopicRef {
  readonly stream: string
  readonly name: string
}

const sendKeys: readonly (keyof SendOptions)[] = ["key", "partition", "headers", "id", "timestampMicros"]
const batchKeys: readonly (keyof SendBatchOptions)[] = ["key", "partition"]

/** Records of a `sendBatch` with their route, checked. @throws InvalidError, RecordTooLargeError that names the record by its index */
export function preparedBatch(
  records: readonly (Uint8Array | OutgoingRecord)[] | PooledContent,
  options: SendBatchOptions | undefined,
  own: { readonly route: Route; readonly limits: Manifest["limits"]; readonly headers?: Headers | undefined },
): { readonly records: readonly SendableRecord[]; readonly route: Route } {
  let { route } = own
  if (options !== undefined) {
    checkKeys("sendBatch", options, batchKeys)
    route = routeOf(options, route, own.limits)
  }
  if (records instanceof PooledContent) return { records: records.records, route }
  return { records: prepareRecords(records, own.limits, { resend: false, own: own.headers }), route }
}

/** One record of a `send`, checked. @param own See `PrepareOptions`. @throws InvalidError, RecordTooLargeError */
export function preparedSend(
  payload: Uint8Array | null,
  options: SendOptions | undefined,
  { limits, own }: { readonly limits: Manifest["limits"]; readonly own?: Headers | undefined },
): SendableRecord {
  if (options === undefined) {
    if (payload !== null) {
      checkPayload(payload, limits)
      return payload
    }
    return prepareRecord({ payload }, limits)
  }
  checkKeys("send", options, sendKeys)
  return prepareFields(payload, options, { limits, resend: false, own })
}

/** Nothing is made for options that are good, which is once a send. @throws InvalidError for keys that are not known */
function checkKeys<T extends object>(what: string, options: T, known: readonly (keyof T & string)[]): void {
  let good = typeof options === "object" && options !== null
  if (good) for (const key in options) if (!known.includes(key)) good = false
  if (!good) new OptionReader<T>(what, options, known)
}

/** @throws InvalidError unless it is a topic with a good name */
export function nameOf(topic: TopicRef, manifest: Manifest): TopicName {
  if (typeof topic !== "object" || topic === null || typeof topic.stream !== "string") {
    throw new InvalidError(`sendTo takes a topic handle, as client.topic() gives it, not ${shown(topic)}`)
  }
  return { stream: topic.stream, topic: checkName("topic", topic.name, manifest.limits) }
}
