import { ClosedError, type Manifest, TimeoutError, type TopicName } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { AttemptSettings } from "../client/attempts.ts"
import type { ClientContext, Owned } from "../client/context.ts"
import type { Creation } from "../client/ensure-topic.ts"
import { topicKey } from "../client/names.ts"
import { OptionReader } from "../client/options.ts"
import { CallList } from "./call-list.ts"
import type { SendResult } from "./confirmation.ts"
import { IdentitySource } from "./identity-source.ts"
import type { Partitioner } from "./routing.ts"
import { SendCall, type SendRequest } from "./send-call.ts"
import type { SenderSettings } from "./sender-command.ts"
import { type ProducerStatistics, StatisticsCounter } from "./statistics.ts"
import { TopicPublisher } from "./topic-publisher.ts"

/** How a publisher sends. Checked and complete. */
export interface PublisherSettings {
  /** How errors call it: `producer of topic "s/t"`. */
  readonly owner: string
  readonly batchLength: number
  readonly lingerMs: number
  readonly retries: number
  readonly retryBackoffMs: number
  readonly idempotent: boolean
  readonly onUnknown: "resend" | "fail"
  readonly partitioner: Partitioner | undefined
  readonly creation: Creation | undefined
}

export interface ShutdownOptions {
  /** How long unsettled sends may take, in ms. Default 30,000. */
  readonly timeoutMs?: number
}

const defaultShutdownMs = 30_000

/**
 * What every way of sending stands on: calls go to the publisher of their topic and settle one by one; a flush waits for all, a
 * shutdown ends all. Direct producers, `publish()`, `publishBatch()` and `topic.batch()` are settings of it.
 */
export class Publisher implements Owned {
  readonly #client: ClientContext
  readonly #settings: PublisherSettings
  readonly #sender: SenderSettings
  readonly #setup: AttemptSettings
  readonly #statistics: StatisticsCounter
  readonly #topics = new Map<string, TopicPublisher>()
  /** Of the last call: names are compared by identity first. */
  #lastName: TopicName | undefined
  #lastTopic: TopicPublisher | undefined
  readonly #unsettled = new CallList()
  readonly #abandon = new AbortController()
  readonly #disown: () => void
  #identities: IdentitySource | undefined
  #held: SendCall[] = []
  #holdTimer: Timer | undefined
  #lastSuccessMs = Number.NEGATIVE_INFINITY
  #ending: Promise<void> | undefined
  #drained: (() => void) | undefined

  constructor(client: ClientContext, settings: PublisherSettings) {
    this.#client = client
    this.#settings = settings
    this.#sender = senderSettings(client, settings)
    const { retries, retryBackoffMs } = settings
    this.#setup = { timeoutMs: client.publish.timeoutMs, retries, retryBackoffMs }
    this.#statistics = new StatisticsCounter(client.clock)
    this.#disown = client.own(this)
  }

  get statistics(): ProducerStatistics {
    return this.#statistics.snapshot()
  }

  /** Settles when the topic can take records; creates it where that is allowed. */
  async ready(name: TopicName): Promise<void> {
    this.assertOpen()
    await this.#topic(name).ready()
  }

  /** @throws ClosedError after shutdown */
  assertOpen(): void {
    if (this.#ending !== undefined) throw new ClosedError(`${this.#settings.owner} was shut down`)
  }

  /** Takes the call at once. Settles with its confirmations, or rejects: see `Producer.send`. */
  submit(name: TopicName, request: SendRequest): Promise<SendResult> {
    if (request.records.length === 0) return Promise.resolve({ confirmations: [] })
    const call = new SendCall(name, request, { nowMs: this.#client.clock.monotonicMs(), settled: this.#settled })
    this.#unsettled.add(call)
    this.#statistics.submitted(call)
    const holdMs = this.#settings.lingerMs === 0 ? 0 : this.#holdMs(call.startedMs)
    if (holdMs > 0) this.#hold(call, holdMs)
    else this.#topic(name).submit(call)
    return call.promise
  }

  /** Settles when every send that was called before has settled, well or not. */
  async flush(): Promise<void> {
    this.#releaseHeld()
    await Promise.allSettled([...this.#unsettled].map((call) => call.promise))
  }

  /**
   * Takes no more, and settles when everything has. A second call awaits the first.
   * @throws TimeoutError at the deadline, when sends are still unsettled: these reject too
   */
  shutdown(options?: ShutdownOptions): Promise<void> {
    if (this.#ending !== undefined) return this.#ending
    const read = new OptionReader<ShutdownOptions>(`shutdown of the ${this.#settings.owner}`, options, ["timeoutMs"])
    const timeoutMs = read.duration("timeoutMs", { zero: true, fallback: defaultShutdownMs })
    this.#ending = this.#end(timeoutMs)
    return this.#ending
  }

  async #end(timeoutMs: number): Promise<void> {
    this.#releaseHeld()
    try {
      if (this.#unsettled.size > 0) await this.#drain(timeoutMs)
    } finally {
      this.#abandon.abort()
      this.#disown()
    }
  }

  #drain(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.#client.clock.setTimer(timeoutMs, () => {
        this.#drained = undefined
        reject(this.#giveUp(timeoutMs))
      })
      this.#drained = () => {
        timer.cancel()
        resolve()
      }
    })
  }

  #giveUp(timeoutMs: number): TimeoutError {
    const sends = this.#unsettled.size
    let records = 0
    for (const call of this.#unsettled) records += call.count
    const what = `${records} ${records === 1 ? "record" : "records"} of ${sends} ${sends === 1 ? "send" : "sends"}`
    const message = `${this.#settings.owner}: ${what} had no confirmation ${timeoutMs} ms after its shutdown began`
    const ended = new TimeoutError(message, { outcome: "rejected" })
    for (const topic of this.#topics.values()) topic.abort(ended)
    return new TimeoutError(message, { context: { unconfirmedRecords: records, unconfirmedSends: sends } })
  }

  readonly #settled = (call: SendCall, failed: boolean): void => {
    const nowMs = this.#client.clock.monotonicMs()
    this.#unsettled.remove(call)
    this.#statistics.settled(call, failed, nowMs)
    if (!failed) this.#lastSuccessMs = nowMs
    if (this.#unsettled.size === 0) this.#drained?.()
  }

  /** How long a call waits so that it begins `lingerMs` after the previous one ended; 0 while another one is under way. */
  #holdMs(nowMs: number): number {
    const due = this.#lastSuccessMs + this.#settings.lingerMs
    if (this.#held.length > 0) return Math.max(due - nowMs, Number.MIN_VALUE)
    return this.#unsettled.size > 1 ? 0 : due - nowMs
  }

  #hold(call: SendCall, ms: number): void {
    this.#held.push(call)
    this.#holdTimer ??= this.#client.clock.setTimer(ms, () => this.#releaseHeld())
  }

  #releaseHeld(): void {
    this.#holdTimer?.cancel()
    this.#holdTimer = undefined
    const held = this.#held
    this.#held = []
    for (const call of held) this.#topic(call.name).submit(call)
  }

  #topic(name: TopicName): TopicPublisher {
    if (name === this.#lastName) return this.#lastTopic as TopicPublisher
    const topic = this.#findTopic(name)
    this.#lastName = name
    this.#lastTopic = topic
    return topic
  }

  #findTopic(name: TopicName): TopicPublisher {
    const key = topicKey(name)
    let topic = this.#topics.get(key)
    if (topic === undefined) {
      topic = new TopicPublisher(name, {
        client: this.#client,
        settings: this.#sender,
        setup: this.#setup,
        batchLength: this.#settings.batchLength,
        partitioner: this.#settings.partitioner,
        identities: this.#identitiesForTopic(),
        creation: this.#settings.creation,
        signal: this.#abandon.signal,
        onResend: () => this.#statistics.resent(),
      })
      this.#topics.set(key, topic)
    }
    return topic
  }

  /** One identity for the producer or one a topic, as the backend has it. */
  #identitiesForTopic(): IdentitySource | undefined {
    if (!this.#sender.sequenced) return undefined
    const { session, clock } = this.#client
    const make = (): IdentitySource =>
      new IdentitySource(session.log, { clock, settings: this.#setup, signal: this.#abandon.signal })
    if (session.manifest.append.identityScope === "topic") return make()
    this.#identities ??= make()
    return this.#identities
  }
}

/** Without sequences a failed batch could be overtaken, so only one is in flight for a partition. */
function senderSettings(client: ClientContext, settings: PublisherSettings): SenderSettings {
  const { append }: Manifest = client.session.manifest
  const sequenced = settings.idempotent && append.dedup === "sequence" && append.identityScope !== "none"
  return {
    maxInFlight: sequenced ? append.inFlight.offsets : 1,
    sequenced,
    windowMs: append.windowMs,
    retries: settings.retries,
    retryBackoffMs: settings.retryBackoffMs,
    attemptTimeoutMs: client.publish.timeoutMs,
    onUnknown: settings.onUnknown,
  }
}

/** Settings of the publisher behind `publish()`, `publishBatch()` and `topic.batch()`: the connection's. */
export function connectionSettings(client: ClientContext): PublisherSettings {
  const { retries, retryBackoffMs } = client.publish
  return {
    owner: "client",
    batchLength: 1000,
    lingerMs: 0,
    retries,
    retryBackoffMs,
    idempotent: true,
    onUnknown: "resend",
    partitioner: undefined,
    creation: undefined,
  }
}
