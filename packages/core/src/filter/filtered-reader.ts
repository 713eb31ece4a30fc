/**
 * Reads through filters on every backend: next to the log where the driver evaluates them, and here where it does not. Either way
 * `nextOffset` covers every record that was examined.
 */
import {
  compileFilter,
  type EncodedBatch,
  errorAt,
  filterLimits,
  type LogReader,
  type MillraceError,
  type PartitionRead,
  type ReaderOptions,
  type ReadLimits,
  type ReadPosition,
  Selection,
  type Session,
  type TopicPartition,
} from "@millrace/contract"
import { topicKey } from "../client/names.ts"
import { SelectedBatch } from "./selected-batch.ts"

/**
 * A reader whose batches hold only what the filters select; a topic without a filter is read as it is.
 *
 * A record that a filter with fault "stop" cannot decode fails its partition with a DecodeError (its `context` has `offset` and `fault`),
 * after what was selected before it.
 */
export function openFilteredReader(
  session: Pick<Session, "manifest" | "log">,
  { isolation, filters = [] }: ReaderOptions,
): LogReader {
  if (filters.length === 0) return session.log.openReader({ isolation })
  if (session.manifest.read.filters === "server") return session.log.openReader({ isolation, filters })
  return new FilteredReader(session.log.openReader({ isolation }), filters)
}

interface Place {
  readonly position: ReadPosition
  /** Where the owner stands: behind all that it was given. */
  offset: bigint
  /** Set while a poll was under way, whose answer may be of another position. */
  doubtful: boolean
  /** The filter stopped: told at the next poll, and not read until there is a new position. */
  error: MillraceError | undefined
  failed: boolean
}

class FilteredReader implements LogReader {
  readonly #inner: LogReader
  readonly #selections: ReadonlyMap<string, Selection>
  #places = new Map<string, Place>()
  #polling = false
  #closed = false

  constructor(inner: LogReader, filters: NonNullable<ReaderOptions["filters"]>) {
    this.#inner = inner
    this.#selections = new Map(
      filters.map((filter) => [topicKey(filter), new Selection(compileFilter(filter.filter))] as const),
    )
  }

  set(positions: readonly ReadPosition[]): void {
    const known = this.#places
    this.#places = new Map()
    for (const position of positions) {
      const key = placeKey(position)
      const old = known.get(key)
      const stays =
        old !== undefined && !old.failed && old.offset === position.offset && old.position.lineage === position.lineage
      const { offset } = position
      this.#places.set(
        key,
        stays ? { ...old, position } : { position, offset, doubtful: this.#polling, error: undefined, failed: false },
      )
    }
    this.#setInner()
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    const stopped = this.#takeErrors()
    if (stopped.length > 0 && !this.#closed) return stopped
    const maxRecords = Math.min(limits.maxRecords, filterLimits.examinedRecords)
    this.#polling = true
    let answer: PartitionRead[]
    try {
      answer = await this.#inner.next({
        maxRecords,
        maxBytes: Math.min(limits.maxBytes, filterLimits.examinedBytes),
        minRecords: Math.min(limits.minRecords, maxRecords),
        maxWaitMs: limits.maxWaitMs,
      })
    } finally {
      this.#polling = false
    }
    const reads: PartitionRead[] = []
    let astray = false
    for (const read of answer) {
      const place = this.#places.get(placeKey(read))
      if (place === undefined || place.error !== undefined || place.failed) continue
      if (place.doubtful) {
        place.doubtful = false
        if (!isAt(read, place.offset)) {
          astray = true
          continue
        }
      }
      reads.push(this.#take(place, read))
      astray ||= place.error !== undefined
    }
    if (astray) this.#setInner()
    return reads
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#inner.close()
  }

  #take(place: Place, read: PartitionRead): PartitionRead {
    if (read.error !== undefined) {
      place.failed = true
      return read
    }
    const selection = this.#selections.get(topicKey(read))
    if (selection === undefined) {
      place.offset = read.nextOffset
      return read
    }
    const batches: EncodedBatch[] = []
    for (const batch of read.batches) {
      const from = batch.firstOffset < place.offset ? batch.indexOf(place.offset) : 0
      selection.run(batch, { from, to: batch.count, most: batch.count })
      if (selection.count === batch.count) batches.push(batch)
      else if (selection.count > 0) batches.push(new SelectedBatch(batch, selection.picked()))
      if (selection.error === undefined) continue
      place.offset = batch.offset(selection.next)
      place.error = errorAt(selection.error, { ...partitionOf(read), offset: place.offset })
      return { ...read, batches, nextOffset: place.offset }
    }
    place.offset = read.nextOffset
    return { ...read, batches }
  }

  #takeErrors(): PartitionRead[] {
    const reads: PartitionRead[] = []
    for (const place of this.#places.values()) {
      if (place.error === undefined || place.failed) continue
      place.failed = true
      reads.push({ ...partitionOf(place.position), error: place.error })
    }
    return reads
  }

  #setInner(): void {
    const positions: ReadPosition[] = []
    for (const { position, offset, error, failed } of this.#places.values())
      if (error === undefined && !failed) positions.push({ ...position, offset })
    this.#inner.set(positions)
  }
}

/** Whether an answer can be of this position. Where it cannot be told from records, it is asked for again. */
function isAt(read: PartitionRead, offset: bigint): boolean {
  if (read.error !== undefined) return false
  const [first] = read.batches
  return first !== undefined && first.firstOffset <= offset && offset <= first.lastOffset
}

function partitionOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}

function placeKey(partition: TopicPartition): string {
  return `${topicKey(partition)}\n${partition.partition}`
}
