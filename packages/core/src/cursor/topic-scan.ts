import {
  type EncodedBatch,
  HistoryChangedError,
  type Lineage,
  type LogReader,
  MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  type PartitionRead,
  type ReadPosition,
  TimeoutError,
  type TopicName,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { RecordOpener } from "../encryption/encryptor.ts"
import { poisonOf } from "../handler/poison.ts"
import type { MergeRun, RunFailure } from "./message-merge.ts"

/** The most records of one partition that one poll reads (table 1.7, "Cursor poll"). */
const pollRecords = 10_000
/** After so many encoded bytes a poll asks for no more: the rest of the partitions is the next poll's. */
const pollBytes = 64 * 1_048_576
/** Room for a poll's records of 400 bytes: a poll that asks twice waits for the backend while the caller has nothing to decode. */
const requestBytes = 4 * 1_048_576
/** How long a request may take to bring records that the watermarks promise, in ms. */
const requestWaitMs = 1000

/** How far a partition was read, and of which history. Without one: of whichever there is. */
export interface ScanPlace {
  readonly offset: bigint
  readonly lineage: Lineage | undefined
}

/** What one poll has read of a partition. */
export interface ScanRun extends MergeRun {
  readonly place: TopicPartition
  readonly lineage: Lineage
  /** The end when the poll began. */
  readonly end: bigint
  next: bigint
  failure: RunFailure | undefined
  records: number
}

/** Reads every partition of a topic to its end, poll by poll, from where it is told. */
export class TopicScan {
  readonly #context: ClientContext
  readonly #topic: TopicName
  readonly #batch: number
  readonly #opener: RecordOpener | undefined
  readonly #what: string
  #reader: LogReader | undefined
  /** The first request of the next poll, when it is known already what that will ask for. */
  #ahead: { readonly runs: ScanRun[]; readonly answer: Promise<PartitionRead[]> } | undefined
  /** One whose answer nobody wants any more. */
  #unwanted: Promise<unknown> | undefined
  #closed = false

  /** @param of.batch The most records of one request. @param of.what How errors call the reader. */
  constructor(
    context: ClientContext,
    topic: TopicName,
    of: { readonly batch: number; readonly opener: RecordOpener | undefined; readonly what: string },
  ) {
    this.#context = context
    this.#topic = topic
    this.#batch = of.batch
    this.#opener = of.opener
    this.#what = of.what
  }

  /**
   * Reads from every partition to its end. All or nothing: any failure but that of bytes that cannot be read, which ends its own partition's
   * run in its place, is the poll's.
   */
  async poll(known: ReadonlyMap<number, ScanPlace>): Promise<ScanRun[]> {
    const ahead = this.#ahead
    this.#ahead = undefined
    await this.#unwanted
    this.#unwanted = undefined
    const runs = ahead?.runs ?? (await this.#begin(known))
    let open = runs.filter((run) => run.next < run.end)
    let bytes = 0
    let asked = ahead?.answer
    for (let changed = asked === undefined; open.length > 0 && bytes < pollBytes && !this.#closed; ) {
      const answer = await (asked ?? this.#ask(changed ? open : undefined))
      asked = undefined
      if (answer.length === 0) throw this.#silent(open[0] as ScanRun)
      for (const part of answer) bytes += this.#takePart(open, part)
      const rest = open.filter((run) => run.next < run.end && run.records < pollRecords && run.failure === undefined)
      changed = rest.length < open.length
      open = rest
    }
    return runs
  }

  /** Where a poll has left something: asks for more of it, while its records are looked at. One request, whose answer is the next poll's. */
  readAhead(runs: readonly ScanRun[]): void {
    const next = runs.map(continued)
    const open = next.filter((run) => run.next < run.end)
    if (open.length === 0 || this.#closed) return
    const answer = this.#ask(open)
    // Its failure is the next poll's, if there is one.
    answer.catch(() => {})
    this.#ahead = { runs: next, answer }
  }

  /** The next poll begins elsewhere. */
  forget(): void {
    this.#unwanted = this.#ahead?.answer.catch(() => {}) ?? this.#unwanted
    this.#ahead = undefined
  }

  /** Settles when something new may be there, or after `waitMs`. @returns whether something is */
  async waitAtTail(runs: readonly ScanRun[], waitMs: number): Promise<boolean> {
    this.#reader ??= this.#context.session.log.openReader({ isolation: "committed" })
    this.#reader.set(runs.map(positionOf))
    const answer = await this.#reader.next({ maxRecords: 1, maxBytes: 1, minRecords: 1, maxWaitMs: waitMs })
    return answer.some((part) => part.error === undefined && part.batches.length > 0)
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#reader?.close()
  }

  /** One request. @param places Where to read, when that is not where the reader stands. */
  #ask(places: readonly ScanRun[] | undefined): Promise<PartitionRead[]> {
    this.#reader ??= this.#context.session.log.openReader({ isolation: "committed" })
    if (places !== undefined) this.#reader.set(places.map(positionOf))
    return this.#reader.next({
      maxRecords: this.#batch,
      maxBytes: requestBytes,
      minRecords: 1,
      maxWaitMs: requestWaitMs,
    })
  }

  /** Where each partition stands, and how far it goes. None when there is no topic. */
  async #begin(known: ReadonlyMap<number, ScanPlace>): Promise<ScanRun[]> {
    const { session } = this.#context
    const { stream, topic } = this.#topic
    try {
      const { partitions } = await session.catalog.describeTopic(this.#topic)
      const places = partitions.map(({ partition }) => ({ stream, topic, partition }))
      const marks = await session.log.watermarks(places)
      return places.map((place, index) => {
        const mark = valueOf(marks[index] as Watermarks | MillraceError)
        return this.#runOf(place, mark, known.get(place.partition))
      })
    } catch (error) {
      if (error instanceof NotFoundError) return []
      throw error
    }
  }

  #runOf(place: TopicPartition, { first, end, lineage }: Watermarks, known: ScanPlace | undefined): ScanRun {
    const { partition } = place
    const same = known?.lineage === undefined || known.lineage === lineage
    const wanted = same ? (known?.offset ?? 0n) : 0n
    if (wanted > end) {
      throw new OffsetOutOfRangeError(
        `${this.#what}: offset ${wanted} of partition ${partition} is behind its end ${end}: it was saved of another topic, or of an earlier history`,
        { context: { ...place, offset: wanted, first, end } },
      )
    }
    const next = wanted < first ? first : wanted
    return { place, partition, lineage, end, next, failure: undefined, records: 0, pieces: [] }
  }

  /** Takes one partition's part of an answer, and tells its bytes. */
  #takePart(open: readonly ScanRun[], part: PartitionRead): number {
    const run = open.find(({ partition }) => partition === part.partition)
    if (run === undefined) return 0
    if (part.error !== undefined) {
      run.failure = this.#failureOf(run, part.error)
      return 0
    }
    if (part.lineage !== run.lineage)
      throw new HistoryChangedError(`${this.#what}: the topic was replaced during a poll`)
    let bytes = 0
    for (const batch of part.batches) bytes += this.#takeBatch(run, batch, part)
    if (run.records < pollRecords && part.nextOffset > run.next) run.next = part.nextOffset
    return bytes
  }

  /** @throws the error, unless it is of bytes that stay unreadable however often they are read */
  #failureOf(run: ScanRun, error: MillraceError): RunFailure {
    const { place, lineage, next } = run
    const lane = { partition: place, lineage, live: true, draining: false, paused: false }
    if (poisonOf(error, lane) === undefined) throw error
    const { offset: told, nextOffset } = error.context
    const offset = told !== undefined && told > next ? told : next
    return {
      error: error as RunFailure["error"],
      offset,
      next: nextOffset !== undefined && nextOffset > offset ? nextOffset : offset + 1n,
    }
  }

  #takeBatch(run: ScanRun, batch: EncodedBatch, part: PartitionRead & { readonly error?: undefined }): number {
    const room = pollRecords - run.records
    if (room <= 0 || batch.count === 0 || batch.lastOffset < run.next) return 0
    const from = batch.firstOffset >= run.next ? 0 : batch.indexOf(run.next)
    const to = Math.min(batch.count, from + room)
    const { stream, topic, partition } = run.place
    const { lineage } = run
    const source = {
      batch,
      stream,
      topic,
      partition,
      lineage,
      claim: undefined,
      end: part.head,
      opener: this.#opener,
      decoder: undefined,
    }
    run.pieces.push({ source, from, to })
    run.records += to - from
    run.next = to === batch.count ? batch.lastOffset + 1n : batch.offset(to)
    return batch.bytes
  }

  #silent(run: ScanRun): TimeoutError {
    return new TimeoutError(
      `${this.#what}: partition ${run.partition} has records up to ${run.end}, but none came from ${run.next} on within ${requestWaitMs} ms`,
      { outcome: "rejected", context: { ...run.place, offset: run.next } },
    )
  }
}

/** What is left of a run for the next poll, up to the same end. */
function continued({ place, partition, lineage, end, next, failure }: ScanRun): ScanRun {
  return { place, partition, lineage, end, next: failure?.next ?? next, failure: undefined, records: 0, pieces: [] }
}

function positionOf({ place, next, lineage }: ScanRun): ReadPosition {
  return { ...place, offset: next, lineage }
}

function valueOf<V>(outcome: V | MillraceError): V {
  if (outcome instanceof MillraceError) throw outcome
  return outcome as V
}
