/** A log in memory behind the driver contract, with the faults that the consumer's tests need. Single-threaded and deterministic. */
import {
  type Anchor,
  CorruptionError,
  type EncodedBatch,
  errorFromWire,
  errorToWire,
  Headers,
  HistoryChangedError,
  type LogReader,
  type MessageId,
  type MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  type PartitionLog,
  type PartitionRead,
  type Position,
  type ReadLimits,
  type ReadPosition,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { laneKey } from "../partition/lane.ts"

export interface FakeRecord {
  readonly payload?: Uint8Array | null
  readonly key?: Uint8Array | null
  readonly headers?: Headers | Error
  readonly id?: MessageId
  readonly timestampMicros?: bigint
}

/** Records at consecutive offsets from `firstOffset`. */
export class FakeBatch implements EncodedBatch {
  readonly count: number
  readonly bytes: number
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  readonly records: readonly FakeRecord[]

  constructor(firstOffset: bigint, records: readonly FakeRecord[]) {
    this.records = records
    this.count = records.length
    this.bytes = records.reduce((sum, record) => sum + 20 + (record.payload?.length ?? 0), 0)
    this.firstOffset = firstOffset
    this.lastOffset = firstOffset + BigInt(records.length - 1)
  }
  offset(index: number): bigint {
    return this.firstOffset + BigInt(index)
  }
  indexOf(offset: bigint): number {
    return offset > this.lastOffset ? this.count : Math.max(0, Number(offset - this.firstOffset))
  }
  payload(index: number): Uint8Array | null {
    return this.#at(index).payload ?? null
  }
  key(index: number): Uint8Array | null {
    return this.#at(index).key ?? null
  }
  headers(index: number): Headers {
    const headers = this.#at(index).headers
    if (headers instanceof Error) throw headers
    return headers ?? Headers.empty
  }
  id(index: number): MessageId | undefined {
    return this.#at(index).id
  }
  timestampMicros(index: number): bigint {
    return this.#at(index).timestampMicros ?? 0n
  }
  originTimestampMicros(): bigint | undefined {
    return undefined
  }
  checksum(): bigint | undefined {
    return undefined
  }
  #at(index: number): FakeRecord {
    const record = this.records[index]
    if (record === undefined) throw new CorruptionError(`no record ${index} in a batch of ${this.count}`)
    return record
  }
}

class FakePartition {
  batches: FakeBatch[] = []
  first = 0n
  end = 0n
  lineage = "a"
  /** Answered instead of a read, once for each `set`. */
  failure: MillraceError | undefined
  /** Answered instead of every read, until it is taken away. */
  refusal: MillraceError | undefined
  /** Batches that cannot be read: reads end before `offset`, and fail there. */
  readonly damage: { readonly offset: bigint; readonly error: MillraceError }[] = []
}

/** The log and its readers. `polls` counts answers that readers gave. */
export class FakeLog implements PartitionLog {
  readonly partitions: Map<string, FakePartition> = new Map()
  readonly readers: Set<FakeReader> = new Set()
  readonly #clock: Clock
  polls = 0
  /** Polls do not wait. */
  answerEmptyAtOnce = false
  /** Each poll takes one of these failures, if there is one. */
  readonly pollFailures: MillraceError[] = []
  /** Partitions of which every reader gets nothing, by number. */
  readonly silent: Set<number> = new Set()
  /** Runs before a poll looks at the log. */
  beforePoll: (() => Promise<void>) | undefined
  /** Runs before positions are located or watermarks read. */
  beforeLocate: () => Promise<void> = async () => {}

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The partition, made on first sight. */
  add(place: TopicPartition): FakePartition {
    const partition = new FakePartition()
    this.partitions.set(laneKey(place), partition)
    return partition
  }

  find(place: TopicPartition): FakePartition | undefined {
    return this.partitions.get(laneKey(place))
  }

  /** Appends a batch, `at` an offset behind the end to leave a hole. */
  put(place: TopicPartition, records: readonly FakeRecord[], options: { readonly at?: bigint } = {}): void {
    const partition = this.find(place) as FakePartition
    const batch = new FakeBatch(options.at ?? partition.end, records)
    partition.batches.push(batch)
    partition.end = batch.lastOffset + 1n
    this.wake()
  }

  /** Only markers: offsets without records. */
  putMarkers(place: TopicPartition, count: number): void {
    const partition = this.find(place) as FakePartition
    partition.end += BigInt(count)
    this.wake()
  }

  trim(place: TopicPartition, before: bigint): void {
    const partition = this.find(place) as FakePartition
    partition.batches = partition.batches.filter((batch) => batch.lastOffset >= before)
    partition.first = before
    this.wake()
  }

  purge(place: TopicPartition, lineage: string): void {
    const partition = this.find(place) as FakePartition
    partition.batches = []
    partition.first = 0n
    partition.end = 0n
    partition.lineage = lineage
    this.wake()
  }

  wake(): void {
    for (const reader of this.readers) reader.look()
  }

  openReader(): FakeReader {
    const reader = new FakeReader(this, this.#clock)
    this.readers.add(reader)
    return reader
  }

  async locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]> {
    await this.beforeLocate()
    return queries.map(({ at, stream, topic, partition }) => {
      const place = { stream, topic, partition }
      const found = this.find(place)
      if (found === undefined) return missing(place)
      return { ...place, offset: anchored(found, at), lineage: found.lineage }
    })
  }

  async watermarks(places: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]> {
    await this.beforeLocate()
    return places.map(({ stream, topic, partition }) => {
      const place = { stream, topic, partition }
      const found = this.find(place)
      if (found === undefined) return missing(place)
      return { ...place, first: found.first, end: found.end, lineage: found.lineage }
    })
  }

  keyHash(): number {
    throw new Error("not part of these tests")
  }
  writer(): never {
    throw new Error("not part of these tests")
  }
  identify(): never {
    throw new Error("not part of these tests")
  }
  append(): never {
    throw new Error("not part of these tests")
  }
}

class FakeReader implements LogReader {
  readonly #log: FakeLog
  readonly #clock: Clock
  #positions: ReadPosition[] = []
  #stopped = new Set<string>()
  #pending: { limits: ReadLimits; resolve(reads: PartitionRead[]): void; cancel(): void } | undefined
  #turn = 0
  closed = false
  /** Whatever there is, polls wait in vain. */
  deaf = false
  readonly sets: (readonly ReadPosition[])[] = []
  /** What was asked of the log, and of which partitions, each time it was looked at for an answer. */
  readonly asked: { readonly limits: ReadLimits; readonly partitions: readonly number[] }[] = []

  constructor(log: FakeLog, clock: Clock) {
    this.#log = log
    this.#clock = clock
  }

  set(positions: readonly ReadPosition[]): void {
    this.sets.push(positions)
    this.#positions = positions.map((position) => ({ ...position }))
    this.#stopped.clear()
    this.look()
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    await this.#log.beforePoll?.()
    if (this.#pending !== undefined) throw new Error("two polls of one reader")
    const failure = this.#log.pollFailures.shift()
    if (failure !== undefined) throw failure
    return new Promise((resolve) => {
      if (this.#log.answerEmptyAtOnce) {
        this.#log.polls++
        resolve([])
        return
      }
      const timer = this.#clock.setTimer(limits.maxWaitMs, () => this.#answer(this.#collect(limits)))
      this.#pending = { limits, resolve, cancel: () => timer.cancel() }
      this.look()
    })
  }

  look(): void {
    if (this.#pending === undefined || this.deaf) return
    const { limits } = this.#pending
    if (this.#ready(limits)) this.#answer(this.#collect(limits))
  }

  /** Whether the wait is over: so many records are there, so many bytes, or something to tell that is no record. */
  #ready({ minRecords, maxBytes }: ReadLimits): boolean {
    let records = 0
    let bytes = 0
    let told = false
    for (const position of this.#positions) {
      if (this.#stopped.has(laneKey(position)) || this.#log.silent.has(position.partition)) continue
      const found = this.#log.find(position)
      if (failureOf(position, found, position) !== undefined) return true
      const { batches, end, damage } = found as FakePartition
      if (damage.some((one) => one.offset === position.offset)) return true
      const before = records
      for (const batch of batches) {
        if (batch.lastOffset < position.offset) continue
        records += batch.count
        bytes += batch.bytes
      }
      if (records === before && position.offset < end) told = true
    }
    return told || (records > 0 && (records >= minRecords || bytes >= maxBytes))
  }

  async close(): Promise<void> {
    this.closed = true
    this.#log.readers.delete(this)
    this.#answer([])
  }

  #answer(reads: PartitionRead[]): void {
    const pending = this.#pending
    if (pending === undefined) return
    this.#pending = undefined
    this.#log.polls++
    pending.cancel()
    pending.resolve(reads)
  }

  #collect(limits: ReadLimits): PartitionRead[] {
    const reads: PartitionRead[] = []
    if (this.deaf) return reads
    this.asked.push({ limits, partitions: this.#positions.map(({ partition }) => partition) })
    let left = limits.maxRecords
    let bytes = limits.maxBytes
    const count = this.#positions.length
    this.#turn++
    for (let step = 0; step < count && left > 0 && bytes > 0; step++) {
      const position = this.#positions[(step + this.#turn) % count] as ReadPosition
      const read = this.#readOne(position, { records: left, bytes, first: reads.length === 0 })
      if (read === undefined) continue
      reads.push(read)
      if (read.error !== undefined) continue
      for (const batch of read.batches) {
        left -= batch.count
        bytes -= batch.bytes
      }
    }
    return reads
  }

  #readOne(
    position: ReadPosition,
    left: { readonly records: number; readonly bytes: number; readonly first: boolean },
  ): PartitionRead | undefined {
    const { stream, topic, partition, claim } = position
    const place = { stream, topic, partition }
    const key = laneKey(place)
    if (this.#stopped.has(key) || this.#log.silent.has(partition)) return undefined
    const found = this.#log.find(place)
    const error = failureOf(place, found, position)
    if (error !== undefined) {
      this.#stopped.add(key)
      if (found !== undefined) found.failure = undefined
      return { ...place, error }
    }
    const { batches, end, lineage, damage } = found as FakePartition
    if (position.offset >= end) return undefined
    const bad = damage.find((one) => one.offset >= position.offset)
    if (bad?.offset === position.offset) {
      this.#stopped.add(key)
      return { ...place, error: freshly(bad.error) }
    }
    const chosen: FakeBatch[] = []
    let records = 0
    let bytes = 0
    for (const batch of batches) {
      if (batch.lastOffset < position.offset) continue
      if (bad !== undefined && batch.firstOffset >= bad.offset) break
      const large = records + batch.count > left.records || bytes + batch.bytes > left.bytes
      if (large && (records > 0 || !left.first)) break
      chosen.push(batch)
      records += batch.count
      bytes += batch.bytes
    }
    if (chosen.length === 0 && batches.some((batch) => batch.lastOffset >= position.offset)) return undefined
    const last = chosen.at(-1)
    const atEnd = last === undefined || last === batches.at(-1)
    const nextOffset = atEnd ? end : last.lastOffset + 1n
    this.#positions = this.#positions.map((one) => (laneKey(one) === key ? { ...one, offset: nextOffset } : one))
    return { ...place, batches: chosen, nextOffset, head: end, lineage, ...(claim === undefined ? {} : { claim }) }
  }
}

/** Drivers make a new error each time. */
function freshly(error: MillraceError): MillraceError {
  return errorFromWire(errorToWire(error))
}

function failureOf(
  place: TopicPartition,
  found: FakePartition | undefined,
  position: Position,
): MillraceError | undefined {
  if (found === undefined) return missing(place)
  if (found.failure !== undefined) return found.failure
  if (found.refusal !== undefined) return found.refusal
  if (found.lineage !== position.lineage) return new HistoryChangedError(`the history is ${found.lineage} now`)
  if (position.offset >= found.first && position.offset <= found.end) return undefined
  return new OffsetOutOfRangeError(`${position.offset} is not within ${found.first} and ${found.end}`)
}

function missing(place: TopicPartition): NotFoundError {
  return new NotFoundError(`topic "${place.stream}/${place.topic}" does not exist`)
}

function anchored(partition: FakePartition, at: Anchor): bigint {
  const { batches, first, end } = partition
  if (at.kind === "first") return first
  if (at.kind === "end") return end
  if (at.kind !== "timestampMicros") return batches.at(-1)?.lastOffset ?? end
  // Only as exact as the batch: a driver may answer so.
  const found = batches.find((batch) => batch.records.some((record) => (record.timestampMicros ?? 0n) >= at.value))
  return found?.firstOffset ?? end
}
