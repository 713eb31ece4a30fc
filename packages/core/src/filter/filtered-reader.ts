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
  MillraceError,
  type PartitionRead,
  type ReaderOptions,
  type ReadLimits,
  type ReadPosition,
  Selection,
  type Session,
  type TopicPartition,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { topicKey } from "../client/names.ts"
import { SelectedBatch } from "./selected-batch.ts"

/**
 * A reader whose batches hold only what the filters select; a topic without a filter is read as it is.
 *
 * A record that a filter with fault "stop" cannot decode fails its partition with a DecodeError (its `context` has `offset` and `fault`),
 * after what was selected before it. Where the filter runs here, one `next` does a bounded part of the work that patterns are
 * (`filterLimits.patternWork`), and other work of the program has its turn before the rest.
 */
export function openFilteredReader(
  session: Pick<Session, "manifest" | "log">,
  { isolation, filters = [] }: ReaderOptions,
  clock: Clock,
): LogReader {
  if (filters.length === 0) return session.log.openReader({ isolation })
  if (session.manifest.read.filters === "server") return session.log.openReader({ isolation, filters })
  return new FilteredReader(session.log.openReader({ isolation }), filters, clock)
}

interface Place {
  readonly position: ReadPosition
  /** Where the owner stands: behind all that it was given. */
  offset: bigint
  /** Where the driver's reader stands: behind all that it has answered, examined or not. */
  ahead: bigint
  /** Set while a poll was under way, whose answer may be of another position. */
  doubtful: boolean
  /** The filter stopped: told at the next poll, and not read until there is a new position. */
  error: MillraceError | undefined
  failed: boolean
}

/** The records of a partition, not an error. */
type Records = PartitionRead & { readonly error?: undefined }

class FilteredReader implements LogReader {
  readonly #inner: LogReader
  readonly #selections: ReadonlyMap<string, Selection>
  readonly #pause: Pause
  #places = new Map<string, Place>()
  /** What the driver has answered beyond the work of a turn. */
  #unexamined: PartitionRead[] = []
  #polling = false
  #closed = false

  constructor(inner: LogReader, filters: NonNullable<ReaderOptions["filters"]>, clock: Clock) {
    this.#inner = inner
    this.#pause = new Pause(clock)
    this.#selections = new Map(
      filters.map((filter) => [topicKey(filter), new Selection(compileFilter(filter.filter))] as const),
    )
  }

  set(positions: readonly ReadPosition[]): void {
    const known = this.#places
    const staying = new Set<string>()
    this.#places = new Map()
    for (const position of positions) {
      const key = placeKey(position)
      const old = known.get(key)
      const { offset } = position
      if (old !== undefined && !old.failed && old.offset === offset && old.position.lineage === position.lineage) {
        staying.add(key)
        this.#places.set(key, { ...old, position })
      } else {
        const doubtful = this.#polling
        this.#places.set(key, { position, offset, ahead: offset, doubtful, error: undefined, failed: false })
      }
    }
    this.#unexamined = this.#unexamined.filter((read) => staying.has(placeKey(read)))
    this.#setInner()
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    const stopped = this.#takeErrors()
    if (stopped.length > 0 && !this.#closed) return stopped
    if (this.#unexamined.length === 0) await this.#poll(limits)
    else await this.#pause.turn()
    return this.#closed ? [] : this.#examine()
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#unexamined = []
    this.#pause.end()
    await this.#inner.close()
  }

  /** Takes up what the driver answers. */
  async #poll(limits: ReadLimits): Promise<void> {
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
    let astray = false
    for (const read of answer) {
      const place = this.#places.get(placeKey(read))
      if (place === undefined || place.error !== undefined || place.failed) continue
      if (place.doubtful) {
        place.doubtful = false
        if (!isAt(read, place.ahead)) {
          astray = true
          continue
        }
      }
      if (read.error === undefined) place.ahead = read.nextOffset
      this.#unexamined.push(read)
    }
    if (astray) this.#setInner()
  }

  /** As much of what was answered as the work of a turn allows. */
  #examine(): PartitionRead[] {
    const turn = { work: filterLimits.patternWork }
    const waiting = this.#unexamined
    this.#unexamined = []
    const reads: PartitionRead[] = []
    let stopped = false
    for (const read of waiting) {
      const place = this.#places.get(placeKey(read))
      if (place === undefined || place.error !== undefined || place.failed) continue
      if (turn.work <= 0) {
        this.#unexamined.push(read)
        continue
      }
      reads.push(this.#take(place, read, turn))
      stopped ||= place.error !== undefined
    }
    if (stopped) this.#setInner()
    return reads
  }

  #take(place: Place, read: PartitionRead, turn: { work: number }): PartitionRead {
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
    try {
      this.#select(place, read, { selection, turn, batches })
    } catch (error) {
      if (!(error instanceof MillraceError)) throw error
      // A batch that contradicts itself even in its offsets.
      place.error = errorAt(error, { ...partitionOf(read), offset: place.offset })
    }
    return { ...read, batches, nextOffset: place.offset }
  }

  /** Adds what is selected to `batches`, and moves the place behind what was examined. */
  #select(place: Place, read: Records, { selection, turn, batches }: Examination): void {
    for (const [i, batch] of read.batches.entries()) {
      if (turn.work <= 0) {
        this.#unexamined.push({ ...read, batches: read.batches.slice(i) })
        return
      }
      const from = batch.firstOffset < place.offset ? batch.indexOf(place.offset) : 0
      selection.run(batch, { from, to: batch.count, most: batch.count, work: turn.work })
      turn.work -= selection.work
      const { count, next, error } = selection
      const offset = next < batch.count ? batch.offset(next) : batch.lastOffset + 1n
      if (count === batch.count) batches.push(batch)
      else if (count > 0) batches.push(new SelectedBatch(batch, selection.picked()))
      place.offset = offset
      if (error !== undefined) {
        place.error = errorAt(error, { ...partitionOf(read), offset })
        return
      }
      if (next < batch.count) {
        this.#unexamined.push({ ...read, batches: read.batches.slice(i) })
        return
      }
    }
    place.offset = read.nextOffset
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
    for (const { position, ahead, error, failed } of this.#places.values())
      if (error === undefined && !failed) positions.push({ ...position, offset: ahead })
    this.#inner.set(positions)
  }
}

interface Examination {
  readonly selection: Selection
  /** What is left of a turn's work. */
  readonly turn: { work: number }
  readonly batches: EncodedBatch[]
}

/** Lets other work of the program have its turn. */
class Pause {
  readonly #clock: Clock
  #end: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  turn(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#clock.setTimer(0, resolve)
      this.#end = () => {
        timer.cancel()
        resolve()
      }
    })
  }

  /** The pause that is under way ends at once. */
  end(): void {
    this.#end?.()
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
