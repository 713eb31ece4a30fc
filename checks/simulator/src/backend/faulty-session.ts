import {
  type AppendOptions,
  type AppendResult,
  absentQueues,
  absentState,
  absentTransactions,
  type Catalog,
  type ConnectionChange,
  ConnectionError,
  type Manifest,
  murmur2,
  NotFoundError,
  type PartitionLog,
  type SealedBatch,
  type Session,
  type StreamDescription,
  type TopicPartition,
  UnsupportedError,
  type Watermarks,
} from "@millrace/contract"
import type { ControlRequest } from "./fate.ts"
import type { FaultyBackend } from "./faulty-backend.ts"
import { Ingest } from "./ingest.ts"
import { Requests } from "./requests.ts"
import { type SimBatch, SimWriter } from "./sim-batch.ts"
import { SimReader } from "./sim-reader.ts"

const absent = { supported: false, reason: "it is simulated", instead: "Use a real one" } as const

/** One connection to a faulty backend, as the driver contract wants it. */
export class FaultySession implements Session {
  readonly manifest: Manifest
  readonly catalog: Catalog
  readonly log: PartitionLog
  readonly offsets: Session["offsets"]
  readonly groups: Session["groups"]
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
  #lostMs = 0

  /** Made by `FaultyBackend.connect`. */
  constructor(backend: FaultyBackend, onConnection?: (change: ConnectionChange) => void) {
    this.#backend = backend
    this.#requests = new Requests(backend.clock)
    this.#onConnection = onConnection
    this.manifest = backend.manifest
    const name = backend.manifest.backend
    const refuse = (): Promise<never> => Promise.reject(new UnsupportedError(`${name} has no consumers`))
    this.catalog = this.#catalog()
    this.log = this.#log()
    this.offsets = { load: refuse, store: refuse, delete: refuse }
    this.groups = { create: refuse, describe: refuse, delete: refuse, join: refuse }
    this.queues = absentQueues(name, absent)
    this.transactions = absentTransactions(name, absent)
    this.state = absentState(name, absent)
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
    this.#requests.abandon(() => this.#backend.faults.straggles())
    this.#backend.disconnected(this)
  }

  async close(): Promise<void> {
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
          return topic.description
        }),
      trim: (place, before) =>
        this.#ask("change", () => {
          backend.topic(place).log(place.partition)?.trim(Number(before))
          return this.#watermarks(place)
        }),
      purgeTopic: (name) => this.#ask("change", () => backend.topic(name).purge()),
      deleteTopic: (name) => this.#ask("change", () => backend.deleteTopic(name)),
      deleteStream: (stream) => this.#ask("change", () => backend.deleteStream(stream)),
    }
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
      openReader: () =>
        new SimReader({ topic: (place) => backend.topic(place), ask: (work) => this.#ask("read", work) }),
      locate: () => Promise.reject(new UnsupportedError(`${this.manifest.backend} has no readers`)),
      watermarks: (places) => this.#ask("describe", () => places.map((place) => this.#watermarks(place))),
    }
  }

  #watermarks(place: TopicPartition): Watermarks {
    const topic = this.#backend.topic(place)
    const log = topic.log(place.partition)
    const end = BigInt(log?.records.length ?? 0)
    return { ...place, first: BigInt(log?.first ?? 0), end, lineage: topic.description.lineage }
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
    const store = (): AppendResult => this.#backend.store(batch, options.identity)
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

function withoutOffsets({ duplicates }: AppendResult): AppendResult {
  return { contiguous: false, duplicates }
}
