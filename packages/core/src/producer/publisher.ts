import type { Compression, Manifest, MillraceError, TopicName } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { AttemptSettings } from "../client/attempts.ts"
import type { ClientContext } from "../client/context.ts"
import type { Creation } from "../client/ensure-topic.ts"
import { topicKey } from "../client/names.ts"
import { traceCall } from "../observe/traced-call.ts"
import type { Accumulator } from "./accumulator.ts"
import type { BatchJournal, Restoration, RestoredBatch } from "./batch-journal.ts"
import type { Call } from "./call.ts"
import { CallList } from "./call-list.ts"
import type { SendResult } from "./confirmation.ts"
import { type Identities, IdentitySource } from "./identity-source.ts"
import type { Partitioner } from "./routing.ts"
import { SendCall, type SendRequest } from "./send-call.ts"
import type { SenderSettings } from "./sender-command.ts"
import type { StatisticsCounter } from "./statistics.ts"
import { TopicPublisher } from "./topic-publisher.ts"
import type { TransactionScope } from "./transaction-scope.ts"

/** How a publisher sends. Checked and complete. */
export interface PublisherSettings {
  /** How errors call it: `producer of topic "s/t"`. */
  readonly owner: string
  /** Most records, and most bytes, of one request; the backend's limits hold besides. */
  readonly batchRecords: number
  readonly batchBytes: number
  /** Absent: the connection's own. */
  readonly compression?: Compression | undefined
  /** The least gap between sequential sends. */
  readonly lingerMs: number
  readonly retries: number
  readonly retryBackoffMs: number
  readonly idempotent: boolean
  /** Batches of one partition under way at once; the backend's number holds besides. */
  readonly maxInFlight: number
  readonly confirm: "offsets" | "stored"
  readonly release: SenderSettings["release"]
  readonly resends: SenderSettings["resends"]
  readonly onUnknown: "resend" | "fail"
  readonly partitioner: Partitioner | undefined
  readonly creation: Creation | undefined
  readonly onExpired?: SenderSettings["onExpired"]
  /** Where batches are written down before they go out; absent: nowhere. */
  readonly journal?: BatchJournal | undefined
  /** So many records go out again although they may be stored, and their resend is not recognised. */
  readonly onDoubt?: ((records: number) => void) | undefined
  /** What its batches are part of; absent: nothing, each is stored by itself. */
  readonly transaction?: TransactionScope | undefined
}

/**
 * What every way of sending stands on: calls go to the publisher of their topic and settle one by one. Direct producers,
 * `publish()`, `publishBatch()`, `topic.batch()`, batching producers and the lanes of background producers are settings of it.
 */
export class Publisher {
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
  #identities: IdentitySource | undefined
  #held: SendCall[] = []
  #holdTimer: Timer | undefined
  #lastSuccessMs = Number.NEGATIVE_INFINITY

  constructor(client: ClientContext, settings: PublisherSettings, statistics: StatisticsCounter) {
    this.#client = client
    this.#settings = settings
    this.#statistics = statistics
    this.#sender = senderSettings(client, settings)
    const { retries, retryBackoffMs } = settings
    this.#setup = { timeoutMs: client.publish.timeoutMs, retries, retryBackoffMs }
  }

  /** Calls that have not settled. */
  get unsettled(): Iterable<Call> & { readonly size: number } {
    return this.#unsettled
  }

  /** Settles when the topic can take records; creates it where that is allowed. */
  ready(name: TopicName): Promise<void> {
    return this.#topic(name).ready()
  }

  /** Takes the records at once. Settles with their confirmations, or rejects: see `Producer.send`. */
  submit(name: TopicName, request: SendRequest): Promise<SendResult> {
    if (request.records.length === 0) return Promise.resolve({ confirmations: [] })
    const { telemetry, session } = this.#client
    if (telemetry === undefined) return this.#submit(name, request)
    const { limits } = session.manifest
    return traceCall(telemetry, { name, request, limits }, (traced) => this.#submit(name, traced))
  }

  /** Takes a call whose records wait in it, or join it as they come. It says that it has settled by `settled`. */
  take(call: Call): void {
    this.#unsettled.add(call)
  }

  /** Puts the records of a taken call into batches, once its topic can take them. */
  dispatch(call: Call): void {
    this.#topic(call.name).submit(call)
  }

  /** Where a record can be put at once: see `TopicPublisher.acceptor`. */
  acceptor(name: TopicName, partition: number): Accumulator | undefined {
    return this.#topic(name).acceptor(partition)
  }

  /** Puts a batch of an earlier process on its way again; its records are those of the call. The topic is ready, and nothing waits. */
  restore(call: Call, batch: RestoredBatch): Restoration {
    const accumulator = this.acceptor(call.name, -1)
    if (accumulator === undefined) return "replaced"
    const restoration = accumulator.restore(call, batch)
    if (restoration === "restored") this.#unsettled.add(call)
    return restoration
  }

  /** To be told once of each call that was taken. */
  readonly settled = (call: Call, failed: boolean): void => {
    const nowMs = this.#client.clock.monotonicMs()
    this.#unsettled.remove(call)
    this.#statistics.settled(call, failed, nowMs)
    if (!failed) this.#lastSuccessMs = nowMs
  }

  /** What lingers for more records goes out now. */
  release(): void {
    for (const topic of this.#topics.values()) topic.release()
  }

  /** Settles when every send that was called before has settled, well or not. */
  flush(): Promise<void> {
    this.#releaseHeld()
    this.release()
    return this.#unsettled.passed()
  }

  /** Fails everything that has not settled. */
  abort(error: MillraceError): void {
    for (const topic of this.#topics.values()) topic.abort(error)
  }

  /** Gives up what is asked of the backend in the background. Nothing may be taken after it. */
  end(): void {
    this.#abandon.abort()
  }

  #submit(name: TopicName, request: SendRequest): Promise<SendResult> {
    const call = new SendCall(name, request, { nowMs: this.#client.clock.monotonicMs(), settled: this.settled })
    this.#statistics.submitted(call.count, call.payloadBytes, call.startedMs)
    const holdMs = this.#settings.lingerMs === 0 ? 0 : this.#holdMs(call.startedMs)
    this.#unsettled.add(call)
    if (holdMs > 0) this.#hold(call, holdMs)
    else this.#topic(name).submit(call)
    return call.promise
  }

  /** How long a call waits so that it begins `lingerMs` after the previous one ended; 0 while another one is under way. */
  #holdMs(nowMs: number): number {
    const due = this.#lastSuccessMs + this.#settings.lingerMs
    if (this.#held.length > 0) return Math.max(due - nowMs, Number.MIN_VALUE)
    return this.#unsettled.size > 0 ? 0 : due - nowMs
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
        batchRecords: this.#settings.batchRecords,
        batchBytes: this.#settings.batchBytes,
        compression: this.#settings.compression,
        confirm: this.#settings.confirm,
        partitioner: this.#settings.partitioner,
        identities: this.#identitiesForTopic(),
        transaction: this.#settings.transaction,
        creation: this.#settings.creation,
        signal: this.#abandon.signal,
        onResend: () => this.#statistics.resent(),
        journal: this.#settings.journal,
        onDoubt: this.#settings.onDoubt,
      })
      this.#topics.set(key, topic)
    }
    return topic
  }

  /** One identity for the producer or one a topic, as the backend has it. */
  #identitiesForTopic(): Identities | undefined {
    if (!this.#sender.sequenced) return undefined
    if (this.#settings.transaction !== undefined) return this.#settings.transaction.identities
    const { session, clock } = this.#client
    const make = (): IdentitySource =>
      new IdentitySource(session.log, { clock, settings: this.#setup, signal: this.#abandon.signal })
    if (session.manifest.append.identityScope === "topic") return make()
    this.#identities ??= make()
    return this.#identities
  }
}

/**
 * Where a backend refuses gaps by sequences, several batches are in flight only with them: without, a failed batch could be overtaken.
 */
function senderSettings(client: ClientContext, settings: PublisherSettings): SenderSettings {
  const { append }: Manifest = client.session.manifest
  const sequenced = settings.idempotent && append.dedup === "sequence" && append.identityScope !== "none"
  const refusesGaps = sequenced || append.dedup !== "sequence"
  return {
    maxInFlight: refusesGaps ? Math.min(settings.maxInFlight, append.inFlight[settings.confirm]) : 1,
    sequenced,
    windowMs: append.windowMs,
    release: settings.release,
    retries: settings.retries,
    retryBackoffMs: settings.retryBackoffMs,
    resends: settings.resends,
    attemptTimeoutMs: client.publish.timeoutMs,
    onUnknown: settings.onUnknown,
    ...(settings.onExpired === undefined ? {} : { onExpired: settings.onExpired }),
  }
}

/** What all direct sending has in common. */
export const directSending: Pick<PublisherSettings, "batchBytes" | "maxInFlight" | "confirm" | "release" | "resends"> =
  {
    batchBytes: Number.POSITIVE_INFINITY,
    maxInFlight: Number.POSITIVE_INFINITY,
    confirm: "offsets",
    release: "idle",
    resends: "direct",
  }

/** Settings of the publisher behind `publish()`, `publishBatch()` and `topic.batch()`: the connection's. */
export function connectionSettings(client: ClientContext): PublisherSettings {
  const { retries, retryBackoffMs } = client.publish
  return {
    owner: "client",
    ...directSending,
    batchRecords: 1000,
    lingerMs: 0,
    retries,
    retryBackoffMs,
    idempotent: true,
    onUnknown: "resend",
    partitioner: undefined,
    creation: undefined,
  }
}
