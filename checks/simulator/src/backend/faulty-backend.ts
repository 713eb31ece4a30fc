import {
  AlreadyExistsError,
  type AppendOptions,
  type AppendResult,
  type ConnectionChange,
  ConnectionError,
  type Identity,
  InvalidError,
  type Manifest,
  MillraceError,
  NotFoundError,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { Fate, FaultPlan } from "./fate.ts"
import { noFaults } from "./fate.ts"
import { FaultySession } from "./faulty-session.ts"
import { OffsetBook } from "./offset-book.ts"
import type { AppendRules, PartitionLog } from "./partition-log.ts"
import { ProducerBook } from "./producer-book.ts"
import { QueueBook } from "./queue-book.ts"
import { type QueueWatch, unwatchedQueues } from "./queue-watch.ts"
import { type ReadingWatch, unwatched } from "./reading-watch.ts"
import type { BatchWatch, SimBatch } from "./sim-batch.ts"
import { SimCoordination } from "./sim-coordination.ts"
import { SimGroup } from "./sim-group.ts"
import { type History, SimTopic } from "./sim-topic.ts"
import { StateBook } from "./state-book.ts"
import { type TransactionWatch, unwatchedTransactions } from "./transaction-watch.ts"

/** Is told of each append, so that the rules of the contract can be checked from the backend's side. */
export interface BackendWatch extends BatchWatch {
  /** @param fate What will become of it. Answers a number for this one attempt. */
  appendCalled(batch: SimBatch, options: AppendOptions, fate: Fate): number
  /** The backend has stored the batch, knew it already, or refuses it. */
  appendHandled(batch: SimBatch, outcome: AppendResult | MillraceError): void
  /** The caller of the attempt has heard. */
  appendSettled(attempt: number): void
}

export interface BackendOptions {
  readonly clock: Clock
  readonly manifest: Manifest
  /** Default: no faults. */
  readonly faults?: FaultPlan
  readonly watch?: BackendWatch
  readonly reading?: ReadingWatch
  readonly queueWatch?: QueueWatch
  readonly transactionWatch?: TransactionWatch
  /** Batches of more records are refused as too large. Default: none is. */
  readonly largestBatch?: number
  /** A batch that holds a record with a larger payload is refused as too large. Default: none is. */
  readonly largestRecordBytes?: number
  /** Whether each transaction has an identity of its own, or only those behind an abort. Default true. */
  readonly renewsIdentities?: boolean
  /** Whether an epoch that was raised is refused on partitions that have not seen the new one. Default true. */
  readonly fencesEverywhere?: boolean
}

/**
 * A backend in memory that does what real ones do on their worst days: the faults of its plan, outages, topics that vanish, producers
 * that it forgets. It keeps the rules of the driver contract and of its manifest. Every session is a connection of its own.
 */
export class FaultyBackend {
  readonly clock: Clock
  readonly manifest: Manifest
  readonly faults: FaultPlan
  readonly watch: BackendWatch
  readonly reading: ReadingWatch
  readonly queueWatch: QueueWatch
  readonly transactionWatch: TransactionWatch
  readonly offsets: OffsetBook = new OffsetBook({
    topic: (place) => this.topic(place),
    claimOf: (group, place) => this.#groups.get(group)?.claimOf(place),
    holder: (owner, place) => this.coordination.holder(owner, place),
  })
  readonly producers: ProducerBook = new ProducerBook()
  readonly queues: QueueBook
  readonly coordination: SimCoordination
  readonly state: StateBook
  /** Every history of every partition that ever was, in the order of their beginnings. */
  readonly histories: History[] = []
  readonly #options: BackendOptions
  readonly #streams = new Set<string>()
  readonly #topics = new Map<string, SimTopic>()
  readonly #sessions = new Set<FaultySession>()
  readonly #groups = new Map<string, SimGroup>()
  readonly #listeners = new Set<() => void>()
  #incarnations = 0
  #isDown = false

  constructor(options: BackendOptions) {
    this.clock = options.clock
    this.manifest = options.manifest
    this.faults = options.faults ?? noFaults
    this.watch = options.watch ?? nobody
    this.reading = options.reading ?? unwatched
    this.queueWatch = options.queueWatch ?? unwatchedQueues
    this.transactionWatch = options.transactionWatch ?? unwatchedTransactions
    this.queues = new QueueBook(this)
    this.coordination = new SimCoordination(this)
    this.state = new StateBook(this.clock)
    this.#options = options
  }

  /** A connection. @param onConnection Hears of outages, as a driver's caller does. */
  connect(onConnection?: (change: ConnectionChange) => void): FaultySession {
    const session = new FaultySession(this, onConnection)
    this.#sessions.add(session)
    if (this.#isDown) session.cut()
    return session
  }

  disconnected(session: FaultySession): void {
    this.#sessions.delete(session)
  }

  get renewsIdentities(): boolean {
    return this.#options.renewsIdentities ?? true
  }

  get isDown(): boolean {
    return this.#isDown
  }

  /** Ends every connection. Until `restore` nothing is reachable. */
  cut(): void {
    this.#isDown = true
    for (const session of this.#sessions) session.cut()
  }

  restore(): void {
    this.#isDown = false
    for (const session of this.#sessions) session.restore()
  }

  /** The backend was restarted: open transactions are aborted, and what queues were not asked to confirm is undone. */
  restart(): void {
    this.coordination.restart()
    this.queues.crash()
  }

  createStream(stream: string): void {
    if (this.#streams.has(stream)) throw new AlreadyExistsError(`stream "${stream}" exists`)
    this.#streams.add(stream)
  }

  get streams(): readonly string[] {
    return [...this.#streams]
  }

  createTopic(name: TopicName, spec: TopicSpec): TopicDescription {
    if (!this.#streams.has(name.stream)) throw new NotFoundError(`stream "${name.stream}" does not exist`)
    const key = keyOf(name)
    if (this.#topics.has(key)) throw new AlreadyExistsError(`topic "${key}" exists`)
    const topic = new SimTopic(name, spec, {
      incarnation: ++this.#incarnations,
      archive: this.histories,
      clock: this.clock,
    })
    this.#topics.set(key, topic)
    this.changed()
    return topic.description
  }

  get topics(): readonly SimTopic[] {
    return [...this.#topics.values()]
  }

  find(name: TopicName): SimTopic | undefined {
    return this.#topics.get(keyOf(name))
  }

  /** @throws NotFoundError */
  topic(name: TopicName): SimTopic {
    const topic = this.find(name)
    if (topic === undefined) throw new NotFoundError(`topic "${keyOf(name)}" does not exist`)
    return topic
  }

  deleteTopic(name: TopicName): void {
    this.topic(name).end()
    this.#topics.delete(keyOf(name))
    this.changed()
  }

  deleteStream(stream: string): void {
    if (!this.#streams.delete(stream)) throw new NotFoundError(`stream "${stream}" does not exist`)
    for (const topic of this.topics) if (topic.description.stream === stream) this.deleteTopic(topic.description)
  }

  /** The group of this name, made when it is first used. */
  group(name: string): SimGroup {
    let group = this.#groups.get(name)
    if (group === undefined) {
      const { clock, reading } = this
      group = new SimGroup(name, {
        get nowMs() {
          return clock.monotonicMs()
        },
        find: (topic) => this.find(topic),
        claimed: (claim, memberId) => reading.claimed(claim, memberId),
        unclaimed: (claim, why) => reading.unclaimed(claim, why),
      })
      this.#groups.set(name, group)
    }
    return group
  }

  /** Forgets a group with its progress. @throws InvalidError while it has members */
  deleteGroup(name: string): void {
    const group = this.#groups.get(name)
    group?.balance()
    if ((group?.size ?? 0) > 0) throw new InvalidError(`group "${name}" has members`)
    this.#groups.delete(name)
    this.offsets.forget({ kind: "group", name })
  }

  /** Memberships of the group, of whichever session, look at it soon. */
  regroup(name: string): void {
    for (const session of this.#sessions) session.lookAt(name)
  }

  /** Whoever waits for something new in the log looks again. To be called after a change that is not made by a session. */
  changed(): void {
    for (const listener of [...this.#listeners]) listener()
  }

  /** Calls back at every change of the log, until the answer is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** What every partition knows of producers is gone, as after a long silence. */
  forgetProducers(): void {
    for (const topic of this.topics) for (const log of topic.logs) log.forgetProducers()
  }

  /** Stores a batch, or says why not. @throws NotFoundError, SequenceError, FencedError, RecordTooLargeError */
  store(batch: SimBatch, identity: (Identity & { readonly sequence: number }) | undefined): AppendResult {
    try {
      const result = this.#store(batch, identity)
      this.watch.appendHandled(batch, result)
      this.changed()
      return result
    } catch (error) {
      if (error instanceof MillraceError) this.watch.appendHandled(batch, error)
      throw error
    }
  }

  /** @throws NotFoundError when the batch has no place to go to */
  checkBatch(batch: SimBatch): void {
    this.#placeOf(batch)
  }

  #placeOf(batch: SimBatch): { readonly topic: SimTopic; readonly log: PartitionLog } {
    const topic = this.topic(batch.topic)
    if (!topic.isDescribedBy(batch.topic)) throw new NotFoundError(`topic "${keyOf(batch.topic)}" was recreated`)
    const log = topic.log(batch.partition)
    if (log === undefined) throw new ConnectionError(`partition ${batch.partition} is not there`)
    return { topic, log }
  }

  #store(batch: SimBatch, identity: (Identity & { readonly sequence: number }) | undefined): AppendResult {
    const { topic, log } = this.#placeOf(batch)
    const { deduplicationWindowMs } = topic.description
    const rules: AppendRules = {
      manifest: this.manifest,
      windowMs: Math.min(deduplicationWindowMs, this.manifest.append.windowMs ?? deduplicationWindowMs),
      largestBatch: this.#options.largestBatch ?? Number.POSITIVE_INFINITY,
      largestRecordBytes: this.#options.largestRecordBytes ?? Number.POSITIVE_INFINITY,
      isFenced: (present) => (this.#options.fencesEverywhere ?? true) && this.producers.isOld(present),
    }
    return log.append(batch, identity, { nowMs: this.clock.monotonicMs(), rules })
  }
}

const nobody: BackendWatch = {
  made: () => {},
  released: () => {},
  appendCalled: () => 0,
  appendHandled: () => {},
  appendSettled: () => {},
}

function keyOf({ stream, topic }: TopicName): string {
  return `${stream}/${topic}`
}
