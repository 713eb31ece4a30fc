import type { LogReader, MillraceError, ReadLimits, ReadPosition, Session, TopicDescription } from "@millrace/contract"
import { settlesWithin } from "./deadline.ts"
import { decode, type Seen } from "./records.ts"

const roomy: ReadLimits = { maxRecords: 10_000, maxBytes: 8 * 1024 * 1024, minRecords: 1, maxWaitMs: 2_000 }

/** How many empty polls in a row mean that what a test waits for does not come. */
const emptyPolls = 6

/** A reader that remembers its positions, leaves out what lies before them, and checks what holds for every read. */
export class Tail {
  readonly reader: LogReader
  readonly #topic: TopicDescription
  readonly #positions = new Map<number, ReadPosition>()
  readonly #started = new Set<number>()
  /** The errors of partitions, in the order in which they came. */
  readonly errors: { readonly partition: number; readonly error: MillraceError }[] = []
  /** What the last successful read of each partition said beside its batches. */
  readonly heads: Map<number, bigint> = new Map()
  polls = 0

  static open(session: Session, topic: TopicDescription, from: Readonly<Record<number, bigint>>): Tail {
    const tail = new Tail(session, topic)
    tail.set(from)
    return tail
  }

  private constructor(session: Session, topic: TopicDescription) {
    this.reader = session.log.openReader({ isolation: "committed" })
    this.#topic = topic
  }

  position(partition: number): bigint | undefined {
    return this.#positions.get(partition)?.offset
  }

  /** Replaces the partitions; those named anew start at their offset. */
  set(from: Readonly<Record<number, bigint>>, lineage: string = this.#topic.lineage): void {
    this.#positions.clear()
    for (const [partition, offset] of Object.entries(from)) {
      const { stream, topic } = this.#topic
      this.#positions.set(Number(partition), { stream, topic, partition: Number(partition), offset, lineage })
    }
    this.reader.set([...this.#positions.values()])
  }

  /** One poll. The records at or behind the positions, in the order in which they came. */
  async next(limits: Partial<ReadLimits> = {}): Promise<Seen[]> {
    const reads = await settlesWithin("LogReader.next", this.reader.next({ ...roomy, ...limits }))
    this.polls++
    const seen: Seen[] = []
    for (const read of reads) {
      if (read.error !== undefined) {
        this.errors.push({ partition: read.partition, error: read.error })
        continue
      }
      const position = this.#positions.get(read.partition)
      if (position === undefined) throw new Error(`a read of partition ${read.partition}, which is not asked for`)
      let from = position.offset
      for (const batch of read.batches) {
        for (const record of decode(read.partition, batch, from)) {
          if (record.offset < from) throw new Error(`offset ${record.offset} came after ${from - 1n}`)
          seen.push(record)
          from = record.offset + 1n
        }
      }
      if (read.nextOffset < from) throw new Error(`nextOffset ${read.nextOffset} lies before ${from}`)
      if (read.head < from) throw new Error(`head ${read.head} lies before the record that was read, ${from - 1n}`)
      this.#positions.set(read.partition, { ...position, offset: read.nextOffset })
      this.heads.set(read.partition, read.head)
      this.#started.add(read.partition)
    }
    return seen
  }

  /** Polls until something comes. */
  async some(limits: Partial<ReadLimits> = {}): Promise<Seen[]> {
    return this.take(1, limits)
  }

  /** Polls until at least `count` records have come. */
  async take(count: number, limits: Partial<ReadLimits> = {}): Promise<Seen[]> {
    const seen: Seen[] = []
    let empty = 0
    while (seen.length < count) {
      const more = await this.next(limits)
      seen.push(...more)
      empty = more.length === 0 ? empty + 1 : 0
      if (empty < emptyPolls) continue
      throw (
        this.errors[0]?.error ?? new Error(`${seen.length} of ${count} records came, then nothing in ${empty} polls`)
      )
    }
    return seen
  }

  /** Polls until a partition fails, and answers its error. */
  async failure(partition: number): Promise<MillraceError> {
    for (let poll = 0; poll < emptyPolls; poll++) {
      const found = this.errors.find((entry) => entry.partition === partition)
      if (found !== undefined) return found.error
      await this.next()
    }
    throw new Error(`partition ${partition} did not fail in ${emptyPolls} polls`)
  }

  close(): Promise<void> {
    return settlesWithin("LogReader.close", this.reader.close())
  }
}
