import type { TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { endDelivery, traceDelivery } from "../observe/traced-call.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { CheckedProducer } from "./checked-producer.ts"
import type { SendResult } from "./confirmation.ts"
import { type Delivery, DeliveryCall, type DeliveryHandle, type DeliverySettled } from "./delivery-call.ts"
import type { Destination } from "./lane.ts"
import type { ProducerSettings } from "./producer-options.ts"
import { Publisher } from "./publisher.ts"
import { SendingEnd, type ShutdownOptions } from "./sending-end.ts"
import { type ProducerStatistics, StatisticsCounter } from "./statistics.ts"

/** Each send settles with its confirmation. */
export class DirectProducer extends CheckedProducer {
  readonly #statistics: StatisticsCounter
  readonly #publisher: Publisher
  readonly #end: SendingEnd

  constructor(client: ClientContext, name: TopicName, settings: ProducerSettings) {
    super(client, { name, route: settings.route }, settings)
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
    await this.#publisher.ready(this.to.name)
  }

  flush(): Promise<void> {
    return this.#publisher.flush()
  }

  async shutdown(options?: ShutdownOptions): Promise<void> {
    await this.#end.begin(options)
  }

  protected assertTaking(): void {
    this.#end.assertOpen()
  }

  protected take(record: SendableRecord, { name, route }: Destination): Promise<SendResult> {
    return this.#publisher.submit(name, { records: [record], route, resend: false })
  }

  protected takeAll(records: readonly SendableRecord[], { name, route }: Destination): Promise<SendResult> {
    return this.#publisher.submit(name, { records, route, resend: false })
  }

  protected confirm(record: SendableRecord): Promise<Delivery> {
    return this.#deliver(record).delivery
  }

  protected accept(record: SendableRecord): Promise<DeliveryHandle> {
    const handle = this.#deliver(record)
    handle.keepOwnBytes()
    // Nobody else would hear of a failure: an unhandled one is the caller's, as of any send that is not awaited.
    void handle.delivery
    return Promise.resolve(handle)
  }

  #deliver(record: SendableRecord): DeliveryCall {
    const { clock, telemetry } = this.client
    const nowMs = clock.monotonicMs()
    const { name, route } = this.to
    const call = new DeliveryCall(name, record, { route, nowMs, settled: this.#delivered })
    this.#statistics.submitted(1, call.payloadBytes, nowMs)
    call.hold(telemetry === undefined ? record : traceDelivery(telemetry, { call, record, limits: this.limits }))
    this.#publisher.take(call)
    this.#publisher.dispatch(call)
    return call
  }

  readonly #delivered: DeliverySettled = (call, failure) => {
    if (call.span !== undefined) endDelivery(call, failure)
    this.#publisher.settled(call, failure !== undefined)
  }
}
