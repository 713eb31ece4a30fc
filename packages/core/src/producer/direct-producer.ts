import type { Manifest, TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { RecordSealer } from "../encryption/encryptor.ts"
import { sealAll, sealerOf, sealOne } from "../encryption/sealing.ts"
import { endDelivery, traceDelivery } from "../observe/traced-call.ts"
import { type OutgoingRecord, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { type Delivery, DeliveryCall, type DeliveryHandle, type DeliverySettled } from "./delivery-call.ts"
import { PooledBatch, type PooledContent, sendPooled } from "./pooled-batch.ts"
import {
  nameOf,
  type Producer,
  preparedBatch,
  preparedSend,
  type SendBatchOptions,
  type SendOptions,
  type TopicRef,
} from "./producer.ts"
import type { ProducerSettings } from "./producer-options.ts"
import { Publisher } from "./publisher.ts"
import type { Route } from "./routing.ts"
import { SendingEnd, type ShutdownOptions } from "./sending-end.ts"
import { type ProducerStatistics, StatisticsCounter } from "./statistics.ts"

/** Each send settles with its confirmation. */
export class DirectProducer implements Producer {
  readonly #client: ClientContext
  readonly #name: TopicName
  readonly #route: Route
  readonly #limits: Manifest["limits"]
  readonly #sealer: RecordSealer | undefined
  readonly #statistics: StatisticsCounter
  readonly #publisher: Publisher
  readonly #end: SendingEnd

  constructor(client: ClientContext, name: TopicName, settings: ProducerSettings) {
    this.#client = client
    this.#name = name
    this.#route = settings.route
    this.#limits = client.session.manifest.limits
    this.#sealer = sealerOf(client, settings.encryptor)
    this.#statistics = new StatisticsCounter(client.clock)
    const publisher = new Publisher(client, settings.publisher, this.#statistics)
    this.#publisher = publisher
    const { owner } = settings.publisher
    const reports = { name, statistics: () => this.statistics }
    this.#end = new SendingEnd(
      client,
      { owner, publishers: [publisher], flush: () => publisher.flush(), reports },
      this,
    )
  }

  get statistics(): ProducerStatistics {
    return this.#statistics.snapshot()
  }

  async init(): Promise<void> {
    this.#end.assertOpen()
    await this.#publisher.ready(this.#name)
  }

  send(what: Uint8Array | null | PooledBatch, options?: SendOptions): Promise<SendResult> {
    return what instanceof PooledBatch ? this.sendBatch(what, options) : this.#send(this.#name, what, options)
  }

  sendTo(topic: TopicRef, payload: Uint8Array | null, options?: SendOptions): Promise<SendResult> {
    try {
      return this.#send(nameOf(topic, this.#client.session.manifest), payload, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  sendBatch(
    batch: readonly (Uint8Array | OutgoingRecord)[] | PooledBatch,
    options?: SendBatchOptions,
  ): Promise<SendResult> {
    if (batch instanceof PooledBatch) return sendPooled(batch, (content) => this.#sendBatch(content, options))
    return this.#sendBatch(batch, options)
  }

  sendAndConfirm(payload: Uint8Array | null, options?: SendOptions): Promise<Delivery> {
    try {
      this.#end.assertOpen()
      return this.#deliver(preparedSend(payload, options, this.#limits)).delivery
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async enqueue(record: OutgoingRecord): Promise<DeliveryHandle> {
    this.#end.assertOpen()
    const handle = this.#deliver(prepareRecord(record, this.#limits))
    handle.keepOwnBytes()
    // Nobody else would hear of a failure: an unhandled one is the caller's, as of any send that is not awaited.
    void handle.delivery
    return handle
  }

  flush(): Promise<void> {
    return this.#publisher.flush()
  }

  waitUntilAllSends(): Promise<void> {
    return this.flush()
  }

  async shutdown(options?: ShutdownOptions): Promise<void> {
    await this.#end.begin(options)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown()
  }

  #sendBatch(
    records: readonly (Uint8Array | OutgoingRecord)[] | PooledContent,
    options: SendBatchOptions | undefined,
  ): Promise<SendResult> {
    try {
      this.#end.assertOpen()
      const batch = preparedBatch(records, options, { route: this.#route, limits: this.#limits })
      const sealed = sealAll(this.#sealer, this.#name, batch.records)
      return this.#publisher.submit(this.#name, { route: batch.route, records: sealed, resend: false })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #send(name: TopicName, payload: Uint8Array | null, options: SendOptions | undefined): Promise<SendResult> {
    try {
      this.#end.assertOpen()
      const records = [sealOne(this.#sealer, name, preparedSend(payload, options, this.#limits))]
      return this.#publisher.submit(name, { records, route: this.#route, resend: false })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #deliver(prepared: SendableRecord): DeliveryCall {
    const record = sealOne(this.#sealer, this.#name, prepared)
    const { clock, telemetry } = this.#client
    const nowMs = clock.monotonicMs()
    const call = new DeliveryCall(this.#name, record, { route: this.#route, nowMs, settled: this.#delivered })
    this.#statistics.submitted(1, call.payloadBytes, nowMs)
    call.hold(telemetry === undefined ? record : traceDelivery(telemetry, { call, record, limits: this.#limits }))
    this.#publisher.take(call)
    this.#publisher.dispatch(call)
    return call
  }

  readonly #delivered: DeliverySettled = (call, failure) => {
    if (call.span !== undefined) endDelivery(call, failure)
    this.#publisher.settled(call, failure !== undefined)
  }
}
