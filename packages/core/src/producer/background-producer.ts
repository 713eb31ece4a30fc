import { BufferFullError, type TimeoutError, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { diagnostics } from "../observe/diagnostics.ts"
import { allCarryingActive, carryingActive } from "../observe/traced-records.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { bufferBytesOf, outgoingBytesOf } from "../record/record-size.ts"
import type { BackgroundSettings } from "./background-options.ts"
import { BufferBudget } from "./buffer-budget.ts"
import { CheckedProducer } from "./checked-producer.ts"
import type { SendResult } from "./confirmation.ts"
import type { Delivery, DeliveryHandle } from "./delivery-call.ts"
import { FailureDesk } from "./failure-desk.ts"
import { type Destination, Lane } from "./lane.ts"
import type { ProducerSettings } from "./producer-options.ts"
import type { PublishFailedError } from "./publish-failed.ts"
import { Publisher } from "./publisher.ts"
import { SendingEnd, type ShutdownOptions } from "./sending-end.ts"
import { type ProducerStatistics, StatisticsCounter } from "./statistics.ts"

/** Every accepted send is answered with this: what it became, nobody knows yet. */
const accepted: SendResult = Object.freeze({ confirmations: Object.freeze([]) })
const acceptedSend: Promise<SendResult> = Promise.resolve(accepted)

/** Queues sends within a budget of bytes and writes them from lanes (seed 000, "Background producers"). */
export class BackgroundProducer extends CheckedProducer {
  readonly #settings: BackgroundSettings
  readonly #statistics: StatisticsCounter
  readonly #publishers: readonly Publisher[]
  readonly #lanes: readonly Lane[]
  readonly #budget: BufferBudget
  readonly #failures: FailureDesk
  readonly #end: SendingEnd
  readonly #owner: string
  #nextLane = 0

  constructor(client: ClientContext, name: TopicName, settings: ProducerSettings & { background: BackgroundSettings }) {
    super(client, { name, route: settings.route }, settings)
    const { publisher, background } = settings
    this.#owner = publisher.owner
    this.#settings = background
    this.#statistics = new StatisticsCounter(client.clock)
    this.#failures = new FailureDesk(background.onError)
    this.#budget = new BufferBudget(client.clock, {
      owner: `the buffer of the ${publisher.owner}`,
      option: "maxBufferBytes",
      limitBytes: background.maxBufferBytes,
      failureMode: background.failureMode,
      blockTimeoutMs: background.blockTimeoutMs,
      onFull: (outcome) => this.#tellFull(outcome),
      onShort: () => {
        for (const lane of this.#lanes) lane.flushSoon()
      },
    })
    this.#publishers = Array.from(
      { length: background.shards },
      () => new Publisher(client, publisher, this.#statistics),
    )
    this.#lanes = this.#publishers.map((own) => this.#newLane(own))
    this.#end = new SendingEnd(
      client,
      {
        owner: publisher.owner,
        publishers: this.#publishers,
        flush: () => this.#drain(),
        giveUp: (error) => {
          this.#budget.refuse(error)
          for (const lane of this.#lanes) lane.flush()
        },
        reports: { name, statistics: () => this.statistics },
        waitsFor: () => (this.#failures.isBusy ? "onError has not returned" : undefined),
      },
      this,
    )
  }

  get statistics(): ProducerStatistics {
    return this.#statistics.snapshot()
  }

  async init(): Promise<void> {
    this.#end.assertOpen()
    await Promise.all(this.#publishers.map((publisher) => publisher.ready(this.to.name)))
  }

  async flush(): Promise<void> {
    await this.#budget.entered()
    for (const lane of this.#lanes) lane.flush()
    await Promise.all(this.#publishers.map((publisher) => publisher.flush()))
  }

  async shutdown(options?: ShutdownOptions): Promise<void> {
    const ended = this.#end.begin(options, (late) => this.#lastWords(late))
    this.#failures.freeCaller()
    await ended
  }

  protected assertTaking(): void {
    this.#end.assertOpen()
  }

  protected take(record: SendableRecord, to: Destination): Promise<SendResult> {
    const carrying = carryingActive(this.client.telemetry, record, this.limits)
    const bytes = bufferBytesOf(carrying)
    if (!this.#tryTake(bytes)) return this.#accept(bytes, () => this.#laneOf(to.name).sendOne(carrying, to, bytes))
    try {
      this.#laneOf(to.name).sendOne(carrying, to, bytes)
    } catch (error) {
      this.#budget.release(bytes)
      throw error
    }
    return acceptedSend
  }

  protected takeAll(records: readonly SendableRecord[], to: Destination): Promise<SendResult> {
    if (records.length === 0) return acceptedSend
    const carrying = allCarryingActive(this.client.telemetry, records, this.limits)
    let bytes = 0
    for (const record of carrying) bytes += bufferBytesOf(record)
    return this.#accept(bytes, () => this.#laneOf(to.name).send(carrying, to, bytes))
  }

  protected confirm(record: SendableRecord): Promise<Delivery> {
    const carrying = carryingActive(this.client.telemetry, record, this.limits)
    const bytes = bufferBytesOf(carrying)
    const { name } = this.to
    if (!this.#tryTake(bytes)) return this.#later(bytes, () => this.#laneOf(name).confirm(carrying, this.to, bytes))
    try {
      return this.#laneOf(name).confirm(carrying, this.to, bytes)
    } catch (error) {
      this.#budget.release(bytes)
      throw error
    }
  }

  protected async accept(record: SendableRecord): Promise<DeliveryHandle> {
    const carrying = carryingActive(this.client.telemetry, record, this.limits)
    const bytes = bufferBytesOf(carrying)
    return await this.#later(bytes, () => this.#laneOf(this.to.name).deliver(carrying, this.to, bytes))
  }

  #tryTake(bytes: number): boolean {
    if (this.#failures.bytes > 0) this.#refuseBehindFailures()
    return this.#budget.tryTake(bytes)
  }

  /** Lets a send in when there is room. */
  #accept(bytes: number, enter: () => void): Promise<SendResult> {
    return this.#later(bytes, () => {
      enter()
      return accepted
    })
  }

  /** The same, and answers what came of that. */
  #later<T>(bytes: number, enter: () => T | Promise<T>): Promise<T> {
    if (this.#failures.bytes > 0) this.#refuseBehindFailures()
    return this.#budget.take(bytes, enter)
  }

  /** Failures that nobody has taken hold memory beside the buffer: above its size no more is accepted until somebody does. */
  #refuseBehindFailures(): void {
    const { maxBufferBytes, onError } = this.#settings
    const { bytes } = this.#failures
    if (maxBufferBytes === 0 || bytes < maxBufferBytes) return
    const what = onError === undefined ? "shutdown() to tell them, since there is no onError" : "onError to take them"
    throw new BufferFullError(
      `${this.#owner}: failed records of ${bytes} bytes wait for ${what}; above maxBufferBytes (${maxBufferBytes}) no more are accepted`,
    )
  }

  #tellFull(outcome: "waits" | "refused"): void {
    const backpressure = diagnostics["producer.backpressure"]
    if (!backpressure.hasSubscribers) return
    const { stream, topic } = this.to.name
    const { maxBufferBytes } = this.#settings
    backpressure.publish({ stream, topic, outcome, bufferedBytes: this.#budget.usedBytes, maxBufferBytes })
  }

  #laneOf(name: TopicName): Lane {
    const lanes = this.#lanes
    if (lanes.length === 1) return lanes[0] as Lane
    if (this.#settings.sharding === "ordered") return lanes[shardOf(name, lanes.length)] as Lane
    this.#nextLane = (this.#nextLane + 1) % lanes.length
    return lanes[this.#nextLane] as Lane
  }

  #newLane(publisher: Publisher): Lane {
    const { batchLength, batchBytes, lingerMs } = this.#settings
    return new Lane({
      publisher,
      clock: this.client.clock,
      statistics: this.#statistics,
      batchLength,
      batchBytes,
      lingerMs,
      onSettled: (bytes, failure) => this.#settled(bytes, failure),
    })
  }

  #settled(bytes: number, failure: PublishFailedError | undefined): void {
    if (failure !== undefined) this.#failures.report(failure, heldBytesOf(failure))
    this.#budget.release(bytes)
  }

  /** Everything is confirmed, or its failure was told. */
  async #drain(): Promise<void> {
    await this.flush()
    await this.#failures.finished()
  }

  /** What the deadline has failed goes to `onError` as long as that answers at once. */
  #toldInThisTurn(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.client.clock.setTimer(0, resolve)
      void this.#failures.finished().then(() => {
        timer.cancel()
        resolve()
      })
    })
  }

  /** What no `onError` took, or else that not everything was delivered in time. */
  async #lastWords(late: TimeoutError | undefined): Promise<void> {
    if (late !== undefined) await this.#toldInThisTurn()
    this.#failures.keepQueued()
    const kept = this.#failures.takeKept()
    if (kept !== undefined) throw kept
    if (late !== undefined) throw late
  }
}

/** What a failure holds: of a bulk that failed in part, only those records. */
function heldBytesOf({ unconfirmed }: PublishFailedError): number {
  let bytes = 0
  for (const record of unconfirmed) bytes += outgoingBytesOf(record)
  return bytes
}

/** The lane of a topic (FNV-1a of its names). */
function shardOf(name: TopicName, shards: number): number {
  const text = `${name.stream}\n${name.topic}`
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash >>> 0) % shards
}
