/**
 * The disk under a spool, and processes that open it and are killed. What was stored stays; of a killed process no call settles any more,
 * and none has an effect. Every call that changes something is a step, before or behind which a test may kill.
 */
import {
  AlreadyExistsError,
  type AppendResult,
  absentQueues,
  absentState,
  absentTransactions,
  type BatchStamp,
  type BatchWriter,
  type Catalog,
  ClosedError,
  type EncodedBatch,
  type Headers,
  type LogReader,
  type Manifest,
  murmur2,
  NotFoundError,
  type PartitionLog,
  type PartitionRead,
  type ReadPosition,
  type SealedBatch,
  type Session,
  type TopicDescription,
  type TopicName,
  type WireRecord,
} from "@millrace/contract"
import { fakeManifest } from "../producer/fake-backend.test-support.ts"

type Stored = WireRecord & { readonly id: bigint; readonly timestampMicros: bigint }

interface StoredBatch {
  readonly base: bigint
  readonly records: readonly Stored[]
}

interface DiskTopic {
  readonly description: TopicDescription
  batches: StoredBatch[]
  first: bigint
  end: bigint
}

const absent = { supported: false, reason: "it is a test double", instead: "Use a real one" } as const

/** One process that has the disk open. */
export class DiskProcess {
  isDead: boolean = false
  /** Told of each step before it happens, and behind it: `true` kills the process there. */
  kills: (what: string, when: "before" | "behind") => boolean = () => false
  /** What the next appends to a topic fail with. */
  refuses: (topic: string) => Error | undefined = () => undefined
  /** What appends to a topic answer that were stored. */
  losesAnswers: (topic: string) => Error | undefined = () => undefined
  /** Each read lets the event loop turn. */
  readsSlowly: boolean = false

  /** Runs a step, unless the process is dead or dies of it. */
  async step<T>(what: string, work: () => T | Promise<T>): Promise<T> {
    if (this.isDead || this.#dies(what, "before")) return await never<T>()
    const result = await work()
    if (this.isDead || this.#dies(what, "behind")) return await never<T>()
    return result
  }

  /** A call without an effect. */
  async look<T>(work: () => T): Promise<T> {
    if (this.isDead) return await never<T>()
    return work()
  }

  #dies(what: string, when: "before" | "behind"): boolean {
    if (this.kills(what, when)) this.isDead = true
    return this.isDead
  }
}

function never<T>(): Promise<T> {
  return new Promise<T>(() => {})
}

export class FakeDisk {
  readonly streams: Set<string> = new Set()
  readonly topics: Map<string, DiskTopic> = new Map()
  readonly manifest: Manifest = fakeManifest({}, { payloadBytes: 1_000_000, batchBytes: 4_000_000 })
  opened: number = 0

  /** What a topic holds, as texts. */
  texts(topic: string): string[] {
    const { batches } = this.topics.get(topic) ?? { batches: [] }
    return batches.flatMap(({ records }) => records.map(({ payload }) => Buffer.from(payload ?? []).toString()))
  }

  session(process: DiskProcess): Session {
    this.opened++
    const refuse = (): Promise<never> => Promise.reject(new ClosedError("not part of this test double"))
    return {
      manifest: this.manifest,
      catalog: this.#catalog(process),
      log: this.#log(process),
      offsets: { load: refuse, store: refuse, delete: refuse },
      groups: { create: refuse, describe: refuse, delete: refuse, join: refuse },
      queues: absentQueues("fake disk", absent),
      transactions: absentTransactions("fake disk", absent),
      state: absentState("fake disk", absent),
      native: undefined,
      close: () => process.look(() => {}),
    }
  }

  #topic({ topic }: TopicName): DiskTopic {
    const known = this.topics.get(topic)
    if (known === undefined) throw new NotFoundError(`topic "${topic}" does not exist`)
    return known
  }

  #catalog(process: DiskProcess): Catalog {
    const unused = (): Promise<never> => Promise.reject(new ClosedError("not part of this test double"))
    return {
      createStream: (stream) =>
        process.step(`stream ${stream}`, () => {
          this.streams.add(stream)
        }),
      createTopic: (name, spec) =>
        process.step(`topic ${name.topic}`, () => {
          if (this.topics.has(name.topic)) throw new AlreadyExistsError(`topic "${name.topic}" exists`)
          const description = { ...name, ...spec, lineage: name.topic, partitions: [{ partition: 0 }] }
          this.topics.set(name.topic, { description, batches: [], first: 0n, end: 0n })
          return description
        }),
      describeStream: (stream) =>
        process.look(() => {
          if (!this.streams.has(stream)) throw new NotFoundError(`stream "${stream}" does not exist`)
          return { stream, topics: this.topics.size }
        }),
      describeTopic: (name) => process.look(() => this.#topic(name).description),
      listStreams: () => process.look(() => [...this.streams].map((stream) => ({ stream, topics: this.topics.size }))),
      listTopics: () => process.look(() => [...this.topics.values()].map(({ description }) => description)),
      trim: (place, before) =>
        process.step(`trim ${place.topic}`, () => {
          const topic = this.#topic(place)
          topic.batches = topic.batches.filter(({ base, records }) => base + BigInt(records.length) > before)
          topic.first = topic.batches[0]?.base ?? topic.end
          return { ...place, first: topic.first, end: topic.end, lineage: topic.description.lineage }
        }),
      addPartitions: unused,
      purgeTopic: unused,
      deleteTopic: unused,
      deleteStream: unused,
    }
  }

  #log(process: DiskProcess): PartitionLog {
    return {
      keyHash: murmur2,
      writer: (topic, _partition, limits) => new DiskWriter(topic, limits),
      identify: () => Promise.reject(new ClosedError("not part of this test double")),
      append: (batch) => this.#append(process, batch as DiskBatch),
      openReader: () => new DiskReader(process, (name) => this.#topic(name)),
      locate: async () => [],
      watermarks: (places) =>
        process.look(() =>
          places.map((place) => {
            const { first, end, description } = this.#topic(place)
            return { ...place, first, end, lineage: description.lineage }
          }),
        ),
    }
  }

  #append(process: DiskProcess, batch: DiskBatch): Promise<AppendResult> {
    return process.step(`append ${batch.topic.topic}`, () => {
      const error = process.refuses(batch.topic.topic)
      if (error !== undefined) throw error
      const topic = this.#topic(batch.topic)
      const base = topic.end
      topic.batches.push({ base, records: batch.content })
      topic.end += BigInt(batch.content.length)
      const lost = process.losesAnswers(batch.topic.topic)
      if (lost !== undefined) throw lost
      return { base, contiguous: true, duplicates: 0 }
    })
  }
}

class DiskReader implements LogReader {
  readonly #process: DiskProcess
  readonly #find: (name: TopicName) => DiskTopic
  #position: ReadPosition | undefined
  #isClosed = false

  constructor(process: DiskProcess, find: (name: TopicName) => DiskTopic) {
    this.#process = process
    this.#find = find
  }

  set(positions: readonly ReadPosition[]): void {
    this.#position = positions[0]
  }

  async next(): Promise<PartitionRead[]> {
    if (this.#process.readsSlowly) await new Promise((resolve) => setImmediate(resolve))
    return await this.#process.look(() => {
      const position = this.#position
      if (this.#isClosed || position === undefined) return []
      const { batches, end, description } = this.#find(position)
      const [next] = batches.filter(({ base, records }) => base + BigInt(records.length) > position.offset)
      const nextOffset = next === undefined ? position.offset : next.base + BigInt(next.records.length)
      this.#position = { ...position, offset: nextOffset }
      const { stream, topic } = position
      const read = next === undefined ? [] : [new DiskEncodedBatch(next)]
      return [{ stream, topic, partition: 0, batches: read, nextOffset, head: end, lineage: description.lineage }]
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
  }
}

class DiskWriter implements BatchWriter {
  readonly #topic: TopicDescription
  readonly #limits: { readonly records: number; readonly bytes: number }
  readonly #records: WireRecord[] = []
  bytes = 0

  constructor(topic: TopicDescription, limits: { readonly records: number; readonly bytes: number }) {
    this.#topic = topic
    this.#limits = limits
  }

  get count(): number {
    return this.#records.length
  }

  tryAppend({ payload, key, headers, id, timestampMicros }: WireRecord): boolean {
    const size = 10 + (payload?.length ?? 0)
    if (this.count > 0 && (this.count >= this.#limits.records || this.bytes + size > this.#limits.bytes)) return false
    this.bytes += size
    const own = payload === null ? null : payload.slice()
    this.#records.push({ payload: own, key: key === null ? null : key.slice(), headers, id, timestampMicros })
    return true
  }

  seal(stamp: BatchStamp): SealedBatch {
    const content = this.#records.map((record, i) => ({
      ...record,
      id: record.id ?? stamp.id + BigInt(i),
      timestampMicros: record.timestampMicros ?? stamp.timestampMicros,
    }))
    return new DiskBatch(this.#topic, content)
  }
}

class DiskBatch implements SealedBatch {
  readonly partition = 0
  readonly topic: TopicDescription
  readonly content: readonly Stored[]

  constructor(topic: TopicDescription, content: readonly Stored[]) {
    this.topic = topic
    this.content = content
  }

  get count(): number {
    return this.content.length
  }

  get bytes(): number {
    return this.count * 10
  }

  records(): WireRecord[] {
    return [...this.content]
  }

  split(): never {
    throw new Error("not part of this test double")
  }

  release(): void {}
}

class DiskEncodedBatch implements EncodedBatch {
  readonly #batch: StoredBatch

  constructor(batch: StoredBatch) {
    this.#batch = batch
  }

  get count(): number {
    return this.#batch.records.length
  }

  get bytes(): number {
    return this.count * 10
  }

  get firstOffset(): bigint {
    return this.#batch.base
  }

  get lastOffset(): bigint {
    return this.#batch.base + BigInt(this.count - 1)
  }

  offset(index: number): bigint {
    return this.#batch.base + BigInt(index)
  }

  indexOf(offset: bigint): number {
    return Math.min(this.count, Math.max(0, Number(offset - this.#batch.base)))
  }

  payload(index: number): Uint8Array | null {
    return this.#record(index).payload
  }

  key(index: number): Uint8Array | null {
    return this.#record(index).key
  }

  headers(index: number): Headers {
    return this.#record(index).headers
  }

  id(index: number): bigint {
    return this.#record(index).id
  }

  timestampMicros(index: number): bigint {
    return this.#record(index).timestampMicros
  }

  originTimestampMicros(index: number): bigint {
    return this.#record(index).timestampMicros
  }

  checksum(): undefined {
    return undefined
  }

  #record(index: number): Stored {
    return this.#batch.records[index] as Stored
  }
}
