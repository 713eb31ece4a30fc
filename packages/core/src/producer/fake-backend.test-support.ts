/**
 * A backend in memory for tests of sending: topics, identities with sequences, ids, and faults that a test decides on for each request.
 * Requests of one partition are handled in the order of the calls, as the contract says; how long each takes, and what its answer is,
 * is the test's.
 */
import {
  AlreadyExistsError,
  type AppendOptions,
  type AppendResult,
  absentQueues,
  absentState,
  absentTransactions,
  type BatchStamp,
  type BatchWriter,
  type Catalog,
  ClosedError,
  type Compression,
  ConnectionError,
  FencedError,
  type Identity,
  type Manifest,
  type MillraceError,
  murmur2,
  NotFoundError,
  type PartitionLog,
  RecordTooLargeError,
  type SealedBatch,
  SequenceError,
  type Session,
  type StreamDescription,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
  type WireRecord,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"

/** What becomes of one append. `delayMs`: until it is handled; `answerMs`: from there until the answer arrives. */
export interface Fate {
  readonly delayMs?: number
  readonly answerMs?: number
  /** `refuse`: not stored, and the answer says so. `lose`: stored, and the answer is an error of unknown outcome. `silence`: no answer. */
  readonly outcome?: "store" | "refuse" | "lose" | "vanish" | "silence"
  readonly error?: MillraceError
}

export interface StoredRecord extends WireRecord {
  readonly id: bigint
}

interface Partition {
  records: StoredRecord[]
  producers: Map<
    bigint,
    { epoch: number; sequence: number; recent: { sequence: number; count: number; base: number }[] }
  >
  /** When the last request that arrived is handled. */
  busyUntilMs: number
}

interface FakeTopic {
  readonly description: TopicDescription
  readonly partitions: Partition[]
}

const absent = { supported: false, reason: "it is a test double", instead: "Use a real one" } as const

export function fakeManifest(
  append: Partial<Manifest["append"]> = {},
  limits: Partial<Manifest["limits"]> = {},
): Manifest {
  return {
    backend: "fake log",
    append: {
      dedup: "sequence",
      inFlight: { offsets: 5, stored: 5 },
      duplicates: "counted",
      identityScope: "producer",
      idLookup: "resend",
      durability: ["synced", "written"],
      compression: ["none"],
      ...append,
    },
    read: { holes: false, timestampResolutionMicros: 1, originTimestamp: "always", ids: "all", filters: "client" },
    catalog: {
      streams: "objects",
      groups: "objects",
      purge: "restarts",
      expiry: { supported: true },
      sizeRetention: { supported: true },
      addPartitions: { supported: true },
      trim: { supported: true },
    },
    offsets: { durability: ["synced", "written"], range: "any" },
    groups: absent,
    staticMembers: absent,
    queues: absent,
    transactions: absent,
    state: absent,
    limits: {
      payloadBytes: 1000,
      headersBytes: 500,
      headerNameBytes: 255,
      headerValueBytes: 400,
      keyBytes: 100,
      nameBytes: 255,
      partitions: 1000,
      batchBytes: 100_000,
      batchRecords: 100_000,
      ...limits,
    },
  }
}

/** The backend; `session` is what a driver would give. */
export class FakeBackend {
  readonly clock: Clock
  readonly manifest: Manifest
  readonly streams: Set<string> = new Set(["s"])
  readonly topics: Map<string, FakeTopic> = new Map()
  /** Appends in the order of their calls. */
  readonly appends: { partition: number; count: number; sequence: number | undefined; resend: boolean }[] = []
  /** What batches were to be compressed with. */
  readonly compressions: Set<Compression | undefined> = new Set()
  describes: number = 0
  identifies: number = 0
  inFlight: number = 0
  mostInFlight: number = 0
  fate: (append: number, partition: number) => Fate = () => ({})
  /** Batches of more records are refused as too large. */
  largestBatch: number = Number.POSITIVE_INFINITY
  /** Batches that hold a longer payload are refused as too large. */
  largestPayloadBytes: number = Number.POSITIVE_INFINITY
  /** Refuses an old epoch on every partition, not only where the new one was seen. */
  fencesEverywhere: boolean = true
  /** Leaves out every record whose id is there already, not only those of resends by the user. */
  recognisesIds: boolean = false
  failIdentify: (() => MillraceError | undefined) | undefined
  failDescribe: (() => MillraceError | undefined) | undefined
  /** Awaited by each description. */
  describing: (() => Promise<void>) | undefined
  #closed = false
  #incarnation = 0
  #producerId = 0n
  readonly #epochs = new Map<bigint, number>()

  constructor(clock: Clock, manifest: Manifest = fakeManifest()) {
    this.clock = clock
    this.manifest = manifest
  }

  get session(): Session {
    const refuse = (): Promise<never> => Promise.reject(new ClosedError("not part of this test double"))
    return {
      manifest: this.manifest,
      catalog: this.#catalog(),
      log: this.#log(),
      offsets: { load: refuse, store: refuse, delete: refuse },
      groups: { create: refuse, describe: refuse, delete: refuse, join: refuse },
      queues: absentQueues("fake log", absent),
      transactions: absentTransactions("fake log", absent),
      state: absentState("fake log", absent),
      native: undefined,
      close: async () => {
        this.#closed = true
      },
    }
  }

  get isClosed(): boolean {
    return this.#closed
  }

  create(topic: string, partitions = 1, spec: Partial<TopicSpec> = {}): TopicDescription {
    const name = { stream: "s", topic }
    const description: TopicDescription = {
      ...name,
      durability: "synced",
      offsetDurability: "synced",
      deduplicationWindowMs: 120_000,
      deduplicateIds: false,
      ...spec,
      lineage: `incarnation ${++this.#incarnation}`,
      partitions: Array.from({ length: partitions }, (_, partition) => ({ partition })),
      createdMicros: 0n,
    }
    this.topics.set(topic, { description, partitions: description.partitions.map(newPartition) })
    return description
  }

  /** A new incarnation whose partitions remember the producers of the old one, as if nothing had happened. */
  replaceKeepingProducers(topic: string): void {
    const old = this.#topic({ stream: "s", topic }).partitions
    this.create(topic, old.length)
    for (const [i, partition] of this.#topic({ stream: "s", topic }).partitions.entries()) {
      partition.producers = (old[i] as Partition).producers
    }
  }

  /** Writers throw from here on, after so many records of a batch. */
  breakWritersAfter: number = Number.POSITIVE_INFINITY

  /** Writers refuse a longer payload, and go on: what a driver does that knows the topic's own limit. */
  longestWritableBytes: number = Number.POSITIVE_INFINITY

  delete(topic: string): void {
    this.topics.delete(topic)
  }

  grow(topic: string, count: number): void {
    const known = this.#topic({ stream: "s", topic })
    const partitions = [...known.partitions, ...Array.from({ length: count }, newPartition)]
    const described = partitions.map((_, partition) => ({ partition }))
    this.topics.set(topic, { description: { ...known.description, partitions: described }, partitions })
  }

  /** What a reader of one partition sees. */
  texts(topic: string, partition = 0): string[] {
    return this.records(topic, partition).map(({ payload }) =>
      payload === null ? "null" : Buffer.from(payload).toString(),
    )
  }

  records(topic: string, partition = 0): StoredRecord[] {
    return (this.#topic({ stream: "s", topic }).partitions[partition] as Partition).records
  }

  /** Raises a producer's epoch from the outside, as another incarnation of it would. */
  fence(producerId: bigint): void {
    this.#epochs.set(producerId, (this.#epochs.get(producerId) ?? 0) + 1)
  }

  /** Forgets every producer, as a backend does after a long silence. */
  forgetProducers(): void {
    for (const { partitions } of this.topics.values()) for (const partition of partitions) partition.producers.clear()
  }

  #topic(name: TopicName): FakeTopic {
    const topic = this.topics.get(name.topic)
    if (topic === undefined || name.stream !== "s") {
      throw new NotFoundError(`topic "${name.stream}/${name.topic}" does not exist`)
    }
    return topic
  }

  #catalog(): Catalog {
    const describeTopic = async (name: TopicName): Promise<TopicDescription> => {
      this.describes++
      await this.describing?.()
      const error = this.failDescribe?.()
      if (error !== undefined) throw error
      return this.#topic(name).description
    }
    return {
      createStream: async (stream) => {
        if (this.streams.has(stream)) throw new AlreadyExistsError(`stream "${stream}" exists`)
        this.streams.add(stream)
      },
      createTopic: async (name, spec) => {
        if (!this.streams.has(name.stream)) throw new NotFoundError(`stream "${name.stream}" does not exist`)
        if (this.topics.has(name.topic)) throw new AlreadyExistsError(`topic "${name.topic}" exists`)
        const { partitions, ...rest } = spec
        return this.create(name.topic, partitions, rest)
      },
      describeStream: async (stream) => ({ stream, topics: this.topics.size }),
      describeTopic,
      listStreams: async (): Promise<StreamDescription[]> =>
        [...this.streams].map((stream) => ({ stream, topics: this.topics.size })),
      listTopics: async () => [...this.topics.values()].map((topic) => topic.description),
      addPartitions: async (name, count) => {
        this.grow(name.topic, count)
        return this.#topic(name).description
      },
      trim: async (partition) => ({ ...partition, first: 0n, end: 0n, lineage: "" }),
      purgeTopic: async (name) => {
        const { description } = this.#topic(name)
        this.create(name.topic, description.partitions.length)
      },
      deleteTopic: async (name) => {
        this.#topic(name)
        this.topics.delete(name.topic)
      },
      deleteStream: async (stream) => void this.streams.delete(stream),
    }
  }

  #log(): PartitionLog {
    return {
      keyHash: murmur2,
      writer: (topic, partition, limits) => {
        this.compressions.add(limits.compression)
        return new FakeWriter(topic, partition, {
          ...limits,
          breaks: this.breakWritersAfter,
          longestBytes: this.longestWritableBytes,
        })
      },
      identify: async (topic, bump) => this.#identify(topic, bump),
      append: (batch, options) => this.#append(batch as FakeBatch, options),
      openReader: () => {
        throw new ClosedError("not part of this test double")
      },
      locate: async () => [],
      watermarks: async (partitions) =>
        partitions.map((place) => ({
          ...place,
          first: 0n,
          end: BigInt(this.records(place.topic, place.partition).length),
          lineage: this.#topic(place).description.lineage,
        })),
    }
  }

  #identify(topic: TopicName, bump: Identity | undefined): Identity {
    this.identifies++
    const error = this.failIdentify?.()
    if (error !== undefined) throw error
    this.#topic(topic)
    if (bump === undefined) {
      this.#epochs.set(++this.#producerId, 0)
      return { producerId: this.#producerId, epoch: 0 }
    }
    const known = this.#epochs.get(bump.producerId) ?? 0
    if (known > bump.epoch) throw new FencedError(`epoch ${bump.epoch} is old`)
    this.#epochs.set(bump.producerId, bump.epoch + 1)
    return { producerId: bump.producerId, epoch: bump.epoch + 1 }
  }

  #append(batch: FakeBatch, { identity }: AppendOptions): Promise<AppendResult> {
    const fate = this.fate(this.appends.length, batch.partition)
    this.appends.push({
      partition: batch.partition,
      count: batch.count,
      sequence: identity?.sequence,
      resend: batch.stamp.resend,
    })
    this.inFlight++
    this.mostInFlight = Math.max(this.mostInFlight, this.inFlight)
    const known = this.topics.get(batch.topic.topic)?.partitions[batch.partition]
    const nowMs = this.clock.monotonicMs()
    const handledMs = Math.max(known?.busyUntilMs ?? 0, nowMs + (fate.delayMs ?? 0))
    if (known !== undefined) known.busyUntilMs = handledMs
    return new Promise((resolve, reject) => {
      this.#after(handledMs - nowMs, () => {
        const answer = this.#handle(batch, identity, fate)
        if (fate.outcome === "silence") return
        this.#after(fate.answerMs ?? 0, () => {
          this.inFlight--
          if (answer instanceof Error) reject(answer)
          else resolve(answer)
        })
      })
    })
  }

  #after(ms: number, work: () => void): void {
    if (ms <= 0) queueMicrotask(work)
    else this.clock.setTimer(ms, work)
  }

  #handle(batch: FakeBatch, identity: AppendOptions["identity"], fate: Fate): AppendResult | Error {
    if (this.#closed) return new ClosedError("the session is closed")
    if (fate.outcome === "refuse") return fate.error ?? new ConnectionError("refused before it was sent")
    if (fate.outcome === "vanish") return fate.error ?? lost()
    let result: AppendResult
    try {
      result = this.#store(batch, identity)
    } catch (error) {
      return error as Error
    }
    return fate.outcome === "lose" ? (fate.error ?? lost()) : result
  }

  #store(batch: FakeBatch, identity: AppendOptions["identity"]): AppendResult {
    const topic = this.#topic(batch.topic)
    if (topic.description.lineage !== batch.topic.lineage)
      throw new NotFoundError(`topic "${batch.topic.topic}" was recreated`)
    if (batch.count > this.largestBatch) throw new RecordTooLargeError(`${batch.count} records are too many`)
    this.#checkPayloads(batch)
    const partition = topic.partitions[batch.partition] as Partition
    if (identity !== undefined) {
      const duplicate = this.#checkSequence(partition, batch, identity)
      if (duplicate !== undefined) return duplicate
    }
    const base = partition.records.length
    const looks = batch.stamp.resend || this.recognisesIds
    const seen = new Map(looks ? partition.records.map(({ id }, offset) => [id, offset]) : [])
    const fresh = batch.content.filter(({ id }) => !seen.has(id))
    partition.records.push(...fresh)
    if (identity !== undefined) this.#remember(partition, identity, { count: batch.count, base })
    const duplicates = batch.count - fresh.length
    const first = seen.get(batch.content[0]?.id ?? 0n)
    if (duplicates === 0) return { base: BigInt(base), contiguous: true, duplicates: 0 }
    if (duplicates === batch.count && first !== undefined) return { base: BigInt(first), contiguous: true, duplicates }
    return { contiguous: false, duplicates }
  }

  #checkPayloads(batch: FakeBatch): void {
    const limitBytes = this.largestPayloadBytes
    if (limitBytes === Number.POSITIVE_INFINITY) return
    for (const { payload } of batch.content) {
      const sizeBytes = payload?.length ?? 0
      if (sizeBytes <= limitBytes) continue
      const context = { partition: batch.partition, sizeBytes, limitBytes }
      throw new RecordTooLargeError(`${sizeBytes} bytes are more than ${limitBytes}`, { context })
    }
  }

  #checkSequence(
    partition: Partition,
    batch: FakeBatch,
    identity: Identity & { readonly sequence: number },
  ): AppendResult | undefined {
    const present = this.#epochs.get(identity.producerId) ?? 0
    if (this.fencesEverywhere && present > identity.epoch) throw new FencedError(`epoch ${identity.epoch} is old`)
    const known = partition.producers.get(identity.producerId)
    if (known !== undefined && known.epoch > identity.epoch) throw new FencedError(`epoch ${identity.epoch} is old`)
    const begins = known === undefined || identity.epoch > known.epoch
    const echo = begins
      ? undefined
      : known.recent.find(({ sequence, count }) => sequence === identity.sequence && count === batch.count)
    if (echo !== undefined) return { base: BigInt(echo.base), contiguous: true, duplicates: batch.count }
    const expected = begins ? 0 : known.sequence
    if (identity.sequence !== expected) throw new SequenceError(`sequence ${identity.sequence}, expected ${expected}`)
    return undefined
  }

  #remember(
    partition: Partition,
    identity: Identity & { readonly sequence: number },
    place: { readonly count: number; readonly base: number },
  ): void {
    const known = partition.producers.get(identity.producerId)
    const recent = known?.epoch === identity.epoch ? known.recent.slice(-4) : []
    partition.producers.set(identity.producerId, {
      epoch: identity.epoch,
      sequence: (identity.sequence + place.count) & 0x7fff_ffff,
      recent: [...recent, { sequence: identity.sequence, ...place }],
    })
  }
}

function lost(): ConnectionError {
  return new ConnectionError("the connection was lost", { outcome: "unknown" })
}

function newPartition(): Partition {
  return { records: [], producers: new Map(), busyUntilMs: 0 }
}

interface WriterLimits {
  readonly records: number
  readonly bytes: number
  readonly breaks: number
  readonly longestBytes: number
}

class FakeWriter implements BatchWriter {
  readonly #topic: TopicDescription
  readonly #partition: number
  readonly #limits: WriterLimits
  readonly #records: WireRecord[] = []
  bytes = 0

  constructor(topic: TopicDescription, partition: number, limits: WriterLimits) {
    this.#topic = topic
    this.#partition = partition
    this.#limits = limits
  }

  get count(): number {
    return this.#records.length
  }

  tryAppend({ payload, key, headers, id, timestampMicros }: WireRecord): boolean {
    if (this.count >= this.#limits.breaks) throw new RecordTooLargeError("the writer is broken")
    const sizeBytes = payload?.length ?? 0
    const limitBytes = this.#limits.longestBytes
    if (sizeBytes > limitBytes) {
      throw new RecordTooLargeError(`${sizeBytes} bytes are more than ${limitBytes}`, {
        context: { sizeBytes, limitBytes },
      })
    }
    const size = 10 + sizeBytes
    if (this.count > 0 && (this.count >= this.#limits.records || this.bytes + size > this.#limits.bytes)) return false
    this.bytes += size
    const copy = payload === null ? null : payload.slice()
    this.#records.push({ payload: copy, key: key === null ? null : key.slice(), headers, id, timestampMicros })
    return true
  }

  seal(stamp: BatchStamp): SealedBatch {
    const content = this.#records.map((record, index) => ({
      ...record,
      id: record.id ?? stamp.id + BigInt(index),
      timestampMicros: record.timestampMicros ?? stamp.timestampMicros,
    }))
    return new FakeBatch(this.#topic, { partition: this.#partition, content, stamp })
  }
}

class FakeBatch implements SealedBatch {
  readonly topic: TopicDescription
  readonly partition: number
  readonly content: readonly StoredRecord[]
  readonly stamp: BatchStamp
  #released = false

  constructor(
    topic: TopicDescription,
    parts: { readonly partition: number; readonly content: readonly StoredRecord[]; readonly stamp: BatchStamp },
  ) {
    this.topic = topic
    this.partition = parts.partition
    this.content = parts.content
    this.stamp = parts.stamp
  }

  get count(): number {
    return this.content.length
  }

  get bytes(): number {
    return this.count * 10
  }

  records(): WireRecord[] {
    if (this.#released) throw new Error("records() after release()")
    return [...this.content]
  }

  split(): readonly [SealedBatch, SealedBatch] {
    const { topic, partition, stamp } = this
    const half = this.count >> 1
    this.release()
    return [
      new FakeBatch(topic, { partition, stamp, content: this.content.slice(0, half) }),
      new FakeBatch(topic, { partition, stamp, content: this.content.slice(half) }),
    ]
  }

  release(): void {
    if (this.#released) throw new Error("released twice")
    this.#released = true
  }
}
