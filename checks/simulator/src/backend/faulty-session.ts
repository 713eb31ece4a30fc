import {
  type Anchor,
  type AppendOptions,
  type AppendResult,
  absentQueues,
  absentState,
  absentTransactions,
  type Catalog,
  type ConnectionChange,
  ConnectionError,
  type Manifest,
  MillraceError,
  murmur2,
  NotFoundError,
  type OffsetStore,
  type PartitionLog,
  type Position,
  type QueueBroker,
  type SealedBatch,
  type Session,
  type StreamDescription,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { ControlRequest } from "./fate.ts"
import type { FaultyBackend } from "./faulty-backend.ts"
import { Ingest } from "./ingest.ts"
import type { PartitionLog as StoredLog } from "./partition-log.ts"
import { queueBroker } from "./queue-book.ts"
import { Requests } from "./requests.ts"
import { type SimBatch, SimWriter } from "./sim-batch.ts"
import { SimCoordinator } from "./sim-coordinator.ts"
import type { QueueLine, SimQueueSession } from "./sim-queue-session.ts"
import { SimReader } from "./sim-reader.ts"
import { transactionsOf } from "./sim-transaction-session.ts"
import { stateStore } from "./state-book.ts"

const absent = { supported: false, reason: "it is simulated", instead: "Use a real one" } as const

/** One connection to a faulty backend, as the driver contract wants it. */
export class FaultySession implements Session {
  readonly manifest: Manifest
  readonly catalog: Catalog
  readonly log: PartitionLog
  readonly offsets: Session["offsets"]
  readonly groups: SimCoordinator
  readonly queues: Session["queues"]
  readonly transactions: Session["transactions"]
  readonly state: Session["state"]
  readonly native: unknown = undefined
  readonly #backend: FaultyBackend
  readonly #requests: Requests
  readonly #onConnection: ((change: ConnectionChange) => void) | undefined
  /** When the last request of each partition that is on its way arrives. */
  readonly #busyUntilMs = new Map<string, number>()
  readonly #ingests = new Map<string, Ingest>()
  readonly #takers = new Set<SimQueueSession>()
  readonly #watches: (() => void)[] = []
  #lostMs = 0

  /** Made by `FaultyBackend.connect`. */
  constructor(backend: FaultyBackend, onConnection?: (change: ConnectionChange) => void) {
    this.#backend = backend
    this.#requests = new Requests(backend.clock)
    this.#onConnection = onConnection
    this.manifest = backend.manifest
    const name = backend.manifest.backend
    this.catalog = this.#catalog()
    this.log = this.#log()
    this.offsets = this.#offsets()
    this.groups = new SimCoordinator({
      backend,
      isAwake: () => !this.#requests.isClosed && !this.#requests.isStalled,
      ask: (work) => this.#ask("group", work),
    })
    const { queues, transactions, state } = backend.manifest
    this.queues = queues.supported ? this.#queues() : absentQueues(name, absent)
    this.transactions = transactions.supported ? this.#transactions() : absentTransactions(name, absent)
    this.state = state.supported ? this.#state() : absentState(name, absent)
  }

  /** Requests that have not been answered. */
  get open(): number {
    return this.#requests.open
  }

  cut(): void {
    if (this.#requests.isDown || this.#requests.isClosed) return
    this.#lostMs = this.#backend.clock.monotonicMs()
    this.#busyUntilMs.clear()
    this.#ingests.clear()
    this.#requests.cut(() => this.#backend.faults.straggles())
    const error = new ConnectionError("the connection was lost")
    this.#onConnection?.({ state: "lost", server: "simulated:1", error })
  }

  restore(): void {
    if (!this.#requests.isDown || this.#requests.isClosed) return
    this.#requests.restore()
    const afterMs = this.#backend.clock.monotonicMs() - this.#lostMs
    this.#onConnection?.({ state: "restored", server: "simulated:1", afterMs })
  }

  /** The process that holds the connection is gone: it hears of nothing any more. */
  abandon(): void {
    this.groups.close()
    this.#requests.abandon(() => this.#backend.faults.straggles())
    this.#backend.disconnected(this)
  }

  /** The process does not get to run for so long: it hears nothing, and shows no sign of life. */
  stall(ms: number): void {
    this.#requests.stallUntil(this.#backend.clock.monotonicMs() + ms)
  }

  /** Memberships of the group look at it soon. */
  lookAt(group: string): void {
    if (!this.#requests.isStalled && !this.#requests.isDown) this.groups.look(group)
  }

  async close(): Promise<void> {
    this.groups.close()
    for (const taker of this.#takers) await taker.close()
    for (const end of this.#watches) end()
    this.#requests.close()
    this.#backend.disconnected(this)
  }

  #ask<T>(request: ControlRequest, work: () => T): Promise<T> {
    return this.#requests.run(this.#backend.faults.control(request), work)
  }

  #catalog(): Catalog {
    const backend = this.#backend
    return {
      createStream: (stream) => this.#ask("create", () => backend.createStream(stream)),
      createTopic: (name, spec) => this.#ask("create", () => backend.createTopic(name, spec)),
      describeStream: (stream) => this.#ask("describe", () => this.#describeStream(stream)),
      describeTopic: (name) => this.#ask("describe", () => backend.topic(name).description),
      listStreams: () => this.#ask("describe", () => backend.streams.map((stream) => this.#describeStream(stream))),
      listTopics: (stream) =>
        this.#ask("describe", () =>
          backend.topics.map(({ description }) => description).filter((topic) => topic.stream === stream),
        ),
      addPartitions: (name, count) =>
        this.#ask("change", () => {
          const topic = backend.topic(name)
          topic.grow(count)
          backend.changed()
          return topic.description
        }),
      trim: (place, before) =>
        this.#ask("change", () => {
          backend.topic(place).log(place.partition)?.trim(Number(before))
          backend.changed()
          return this.#watermarks(place)
        }),
      purgeTopic: (name) =>
        this.#ask("change", () => {
          backend.topic(name).purge()
          backend.changed()
        }),
      deleteTopic: (name) => this.#ask("change", () => backend.deleteTopic(name)),
      deleteStream: (stream) => this.#ask("change", () => backend.deleteStream(stream)),
    }
  }

  #queues(): QueueBroker {
    const backend = this.#backend
    const line: QueueLine = {
      session: this,
      clock: backend.clock,
      requests: this.#requests,
      watch: backend.queueWatch,
      fate: () => backend.faults.control("pull"),
      oddity: () => backend.faults.oddity?.() ?? "none",
      ask: (request, work) => this.#ask(request, work),
      onChange: (look) => backend.onChange(look),
      changed: () => backend.changed(),
    }
    return queueBroker(backend, line, (taker) => this.#takers.add(taker))
  }

  #transactions(): Session["transactions"] {
    return transactionsOf({ backend: this.#backend, ask: (request, work) => this.#ask(request, work) })
  }

  #state(): Session["state"] {
    return stateStore(
      this.#backend.state,
      (work) => this.#ask("state", work),
      (end) => this.#watches.push(end),
    )
  }

  #describeStream(stream: string): StreamDescription {
    if (!this.#backend.streams.includes(stream)) throw new NotFoundError(`stream "${stream}" does not exist`)
    const topics = this.#backend.topics.filter(({ description }) => description.stream === stream)
    return { stream, topics: topics.length }
  }

  #log(): PartitionLog {
    const backend = this.#backend
    const recordBytes = this.manifest.limits.payloadBytes + this.manifest.limits.keyBytes
    return {
      keyHash: murmur2,
      writer: (topic, partition, limits) =>
        new SimWriter({ topic, partition }, { ...limits, recordBytes }, backend.watch),
      identify: (topic, bump) =>
        this.#ask("identify", () => {
          backend.topic(topic)
          return backend.producers.identify(bump)
        }),
      append: (batch, options) => this.#append(batch, options),
      openReader: () => this.#reader(),
      locate: (queries) =>
        this.#ask("locate", () => queries.map((query) => this.#each(() => this.#locate(query, query.at)))),
      watermarks: (places) => this.#ask("locate", () => places.map((place) => this.#each(() => this.#measure(place)))),
    }
  }

  #reader(): SimReader {
    const backend = this.#backend
    return new SimReader({
      clock: backend.clock,
      requests: this.#requests,
      fate: () => backend.faults.control("read"),
      oddity: () => backend.faults.oddity?.() ?? "none",
      find: (position) => backend.find(position),
      onChange: (look) => backend.onChange(look),
      polled: (limits, overlaps) => backend.reading.polled(this, limits, overlaps),
      answered: (reads) => backend.reading.answered(this, reads),
    })
  }

  #offsets(): OffsetStore {
    const backend = this.#backend
    const { offsets, reading } = backend
    return {
      load: (owner, places) =>
        this.#ask("offsets", () =>
          offsets.load(owner, places).map((answer, index) => {
            const place = places[index] as TopicPartition
            if (!(answer instanceof MillraceError)) reading.loaded(this, owner, answer, place)
            return answer
          }),
        ),
      store: (owner, entries) => {
        for (const entry of entries) reading.storing(this, owner, entry)
        const answer = this.#ask("offsets", () =>
          entries.map((entry) => {
            const refusal = offsets.store(owner, entry)
            reading.stored(this, owner, entry, refusal)
            return refusal
          }),
        )
        answer.catch((error: MillraceError) => {
          for (const entry of entries) reading.unstored(this, owner, entry, error)
        })
        return answer
      },
      delete: (owner, entries) =>
        this.#ask("offsets", () =>
          entries.map((entry) => {
            const refusal = offsets.delete(owner, entry)
            reading.deleted(this, owner, entry, refusal)
            return refusal
          }),
        ),
    }
  }

  /** One outcome a place. */
  #each<V>(work: () => V): V | MillraceError {
    try {
      return work()
    } catch (error) {
      if (error instanceof MillraceError) return error
      throw error
    }
  }

  #measure(place: TopicPartition): Watermarks {
    const marks = this.#watermarks(place)
    this.#backend.reading.measured(this, marks)
    return marks
  }

  #locate({ stream, topic, partition }: TopicPartition, at: Anchor): Position {
    const place = { stream, topic, partition }
    const { log, lineage } = this.#find(place)
    const position: Position = { ...place, offset: BigInt(anchored(log, at)), lineage }
    this.#backend.reading.located(this, at, position)
    return position
  }

  #watermarks({ stream, topic, partition }: TopicPartition): Watermarks {
    const place = { stream, topic, partition }
    const { log, lineage } = this.#find(place)
    return { ...place, first: BigInt(log.first), end: BigInt(log.records.length), lineage }
  }

  /** @throws NotFoundError */
  #find(place: TopicPartition): { readonly log: StoredLog; readonly lineage: string } {
    const found = this.#backend.topic(place)
    const log = found.log(place.partition)
    if (log === undefined) throw new NotFoundError(`partition ${place.partition} of "${place.topic}" is not there`)
    return { log, lineage: found.description.lineage }
  }

  async #append(sealed: SealedBatch, options: AppendOptions): Promise<AppendResult> {
    const batch = sealed as SimBatch
    const { clock, faults, watch } = this.#backend
    const { topic, partition, count } = batch
    const fate = faults.append({ topic: topic.topic, partition, count })
    const attempt = watch.appendCalled(batch, options, fate)
    const nowMs = clock.monotonicMs()
    const place = `${topic.stream}/${topic.topic}/${partition}`
    const handledMs = Math.max(this.#busyUntilMs.get(place) ?? 0, nowMs + fate.arriveMs)
    if (!this.#requests.isDown) this.#busyUntilMs.set(place, handledMs)
    const isIngest = this.#isIngest(options) && !this.#requests.isDown
    const passage = isIngest ? this.#ingestOf(place).begin(batch, fate) : undefined
    const store = (): AppendResult => {
      if (options.transaction === undefined) return this.#backend.store(batch, options.identity)
      this.#backend.coordination.stage(options.transaction, batch, options.identity)
      return staged
    }
    const work = passage === undefined ? store : () => passage.pass(() => withoutOffsets(store()))
    try {
      return await this.#requests.run({ ...fate, arriveMs: handledMs - nowMs }, work, passage?.miss)
    } finally {
      passage?.end()
      watch.appendSettled(attempt)
    }
  }

  #isIngest({ identity, confirm }: AppendOptions): boolean {
    const { inFlight } = this.manifest.append
    return confirm === "stored" && identity === undefined && inFlight.stored > inFlight.offsets
  }

  #ingestOf(place: string): Ingest {
    let ingest = this.#ingests.get(place)
    if (ingest === undefined) {
      ingest = new Ingest()
      this.#ingests.set(place, ingest)
    }
    return ingest
  }
}

/** As exact as a batch: a driver may answer its first record for a time. */
function anchored(log: StoredLog, at: Anchor): number {
  const end = log.records.length
  if (at.kind === "timestampMicros") {
    for (const { base, records } of log.batchesFrom(log.first)) {
      if (records.some(({ timestampMicros }) => timestampMicros >= at.value)) return base
    }
    return end
  }
  if (at.kind === "end") return end
  if (at.kind === "first") return log.first
  for (let offset = end - 1; offset >= log.first; offset--) if (!log.hidden.has(offset)) return offset
  return end
}

/** What is told of a batch before its transaction is committed. */
const staged: AppendResult = { contiguous: false, duplicates: 0 }

function withoutOffsets({ duplicates }: AppendResult): AppendResult {
  return { contiguous: false, duplicates }
}
