import {
  ClosedError,
  type EncodedBatch,
  type Headers,
  HistoryChangedError,
  type LogReader,
  type MessageId,
  MillraceError,
  NotFoundError,
  type PartitionRead,
  type ReadLimits,
  type ReadPosition,
} from "@millrace/contract"
import type { StoredBatch } from "./partition-log.ts"
import type { SimRecord } from "./sim-batch.ts"
import type { SimTopic } from "./sim-topic.ts"

/** Where a reader finds its topics, and how its questions take their time. */
export interface ReaderSource {
  readonly topic: (position: ReadPosition) => SimTopic
  readonly ask: <T>(work: () => T) => Promise<T>
}

/** Reads what is there: a poll answers at once, with nothing where nothing is. */
export class SimReader implements LogReader {
  readonly #source: ReaderSource
  #positions: ReadPosition[] = []
  #isClosed = false

  constructor(source: ReaderSource) {
    this.#source = source
  }

  set(positions: readonly ReadPosition[]): void {
    this.#positions = [...positions]
  }

  next(limits: ReadLimits): Promise<PartitionRead[]> {
    if (this.#isClosed) return Promise.reject(new ClosedError("the reader was closed"))
    return this.#source.ask(() => {
      if (this.#isClosed) return []
      return this.#positions.map((position, index) => {
        const read = this.#read(position, limits)
        if (read.error === undefined) this.#positions[index] = { ...position, offset: read.nextOffset }
        return read
      })
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
  }

  #read(position: ReadPosition, { maxRecords }: ReadLimits): PartitionRead {
    const { stream, topic, partition, lineage } = position
    const place = { stream, topic, partition }
    try {
      const found = this.#source.topic(position)
      const log = found.log(partition)
      if (log === undefined) throw new NotFoundError(`partition ${partition} is not there`)
      if (found.description.lineage !== lineage) throw new HistoryChangedError(`topic "${topic}" has another history`)
      const from = Math.max(Number(position.offset), log.first)
      const batches: EncodedBatch[] = []
      let next = from
      for (const batch of log.batches) {
        const end = batch.base + batch.records.length
        if (end <= from) continue
        if (batches.length > 0 && end - from > maxRecords) break
        batches.push(new SimEncodedBatch(batch))
        next = end
      }
      return { ...place, batches, nextOffset: BigInt(next), head: BigInt(log.records.length), lineage }
    } catch (error) {
      if (error instanceof MillraceError) return { ...place, error }
      throw error
    }
  }
}

class SimEncodedBatch implements EncodedBatch {
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
    return BigInt(this.#batch.base)
  }

  get lastOffset(): bigint {
    return BigInt(this.#batch.base + this.count - 1)
  }

  offset(index: number): bigint {
    return BigInt(this.#batch.base + index)
  }

  indexOf(offset: bigint): number {
    return Math.min(this.count, Math.max(0, Number(offset) - this.#batch.base))
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

  id(index: number): MessageId {
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

  #record(index: number): SimRecord {
    return this.#batch.records[index] as SimRecord
  }
}
