/** A backend that serves from memory: what is measured over it is the cost of the consumer layer alone. */
import {
  type EncodedBatch,
  Headers,
  type LogReader,
  type PartitionRead,
  type ReadLimits,
  type ReadPosition,
  type Session,
} from "@millrace/contract"
import { IdleSession } from "../producer/idle-session.ts"

const lineage = "1"

/** Every partition of every topic has `end` records, which are `records` again and again. Stores of offsets succeed at once. */
export function servingSession(
  records: readonly Uint8Array[],
  of: { readonly partitions: number; readonly end: bigint },
): Session {
  const idle = new IdleSession(of.partitions)
  const marks = { first: 0n, end: of.end, lineage }
  return {
    manifest: idle.manifest,
    catalog: idle.catalog,
    groups: idle.groups,
    queues: idle.queues,
    transactions: idle.transactions,
    state: idle.state,
    native: undefined,
    log: {
      ...idle.log,
      openReader: () => new ServingReader(records, of.end),
      watermarks: async (partitions) => partitions.map((partition) => ({ ...partition, ...marks })),
      locate: async (queries) => queries.map(({ at: _, ...partition }) => ({ ...partition, offset: 0n, lineage })),
    },
    offsets: {
      load: async (_owner, partitions) => partitions.map(() => undefined),
      store: async (_owner, entries) => entries.map(() => undefined),
      delete: async (_owner, entries) => entries.map(() => undefined),
    },
    close: async () => {},
  }
}

class ServingReader implements LogReader {
  readonly #records: readonly Uint8Array[]
  readonly #end: bigint
  #positions: ReadPosition[] = []
  #closed = Promise.withResolvers<PartitionRead[]>()

  constructor(records: readonly Uint8Array[], end: bigint) {
    this.#records = records
    this.#end = end
  }

  set(positions: readonly ReadPosition[]): void {
    this.#positions = positions.map((position) => ({ ...position }))
  }

  next({ maxRecords }: ReadLimits): Promise<PartitionRead[]> {
    const each = Math.max(1, Math.floor(maxRecords / this.#positions.length / this.#records.length))
    const reads = this.#positions.flatMap((position) => this.#read(position, each))
    return reads.length > 0 ? Promise.resolve(reads) : this.#closed.promise
  }

  async close(): Promise<void> {
    this.#closed.resolve([])
  }

  #read(position: ReadPosition, most: number): PartitionRead[] {
    const batches: EncodedBatch[] = []
    let next = position.offset
    for (; batches.length < most && next < this.#end; next += BigInt(this.#records.length)) {
      batches.push(new MemoryBatch(this.#records, next))
    }
    if (batches.length === 0) return []
    ;(position as { offset: bigint }).offset = next
    const { stream, topic, partition } = position
    return [{ stream, topic, partition, batches, nextOffset: next, head: this.#end, lineage }]
  }
}

class MemoryBatch implements EncodedBatch {
  readonly #records: readonly Uint8Array[]
  readonly count: number
  readonly bytes: number
  readonly firstOffset: bigint
  readonly lastOffset: bigint

  constructor(records: readonly Uint8Array[], firstOffset: bigint) {
    this.#records = records
    this.count = records.length
    this.bytes = records.length * (records[0]?.length ?? 0)
    this.firstOffset = firstOffset
    this.lastOffset = firstOffset + BigInt(records.length - 1)
  }

  offset(index: number): bigint {
    return this.firstOffset + BigInt(index)
  }
  indexOf(offset: bigint): number {
    return offset <= this.firstOffset ? 0 : Math.min(this.count, Number(offset - this.firstOffset))
  }
  payload(index: number): Uint8Array {
    return this.#records[index] as Uint8Array
  }
  key(): null {
    return null
  }
  headers(): Headers {
    return Headers.empty
  }
  id(): undefined {}
  timestampMicros(): bigint {
    return 0n
  }
  originTimestampMicros(): undefined {}
  checksum(): undefined {}
}
