import {
  ClosedError,
  DecodeError,
  type EncodedBatch,
  HistoryChangedError,
  InvalidError,
  type Lineage,
  type LogReader,
  MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  type PartitionRead,
  TimeoutError,
  type TopicName,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { longestDurationMs, OptionReader, shown } from "../client/options.ts"
import type { Encryptor, RecordOpener } from "../encryption/encryptor.ts"
import { checkEncryptorChoice, openerOf } from "../encryption/sealing.ts"
import type { BatchMessage, Message } from "../record/message.ts"
import type { Cursor, CursorResult } from "./cursor.ts"
import { type MergeRun, MessageMerge } from "./message-merge.ts"

/** Options of `topic.replay`. */
export interface ReaderOptions {
  /** The most records of one request to the backend. Default 1000. */
  readonly batch?: number
  /** What records are decrypted with; `false` gives them as they are stored. Default: the client's. */
  readonly encryptor?: Encryptor | false
}

/** The most records of one partition that one poll reads (table 1.7, "Cursor poll"). */
const pollRecords = 10_000
/** After so many encoded bytes a poll asks for no more: the rest of the partitions is the next poll's. */
const pollBytes = 64 * 1_048_576
const requestBytes = 1_048_576
/** How long a request may take to bring records that the watermarks promise, in ms. */
const requestWaitMs = 1000
/** A failure that may pass: so many tries, so long × n apart (table 1.7, "Cursor retries"). */
const tries = 5
const retryMs = 50
/** How long one wait at the tail takes before the topic is looked at again, in ms. */
const tailWaitMs = 500

/**
 * Opens a cursor over every partition of a topic. Asks nothing of the backend before the first read.
 * @throws InvalidError for an option out of range.
 */
export async function openCursor(
  context: ClientContext,
  topic: TopicName,
  options?: ReaderOptions,
): Promise<Cursor<Message>> {
  const what = `reader of topic "${topicText(topic)}"`
  const reader = new OptionReader<ReaderOptions>(what, options, ["batch", "encryptor"])
  return new LogCursor(context, topic, {
    batch: reader.whole("batch", { min: 1, max: 1_000_000, fallback: 1000 }),
    opener: openerOf(context, checkEncryptorChoice(what, options?.encryptor)),
  })
}

/** What one poll has read of a partition. */
interface Run extends MergeRun {
  readonly place: TopicPartition
  readonly lineage: Lineage
  /** The end when the poll began. */
  readonly end: bigint
  /** The next offset to read. */
  next: bigint
  records: number
}

class LogCursor implements Cursor<Message> {
  readonly #context: ClientContext
  readonly #topic: TopicName
  readonly #batch: number
  readonly #opener: RecordOpener | undefined
  readonly #disown: () => void
  /** Behind what was given out. */
  #offsets = new Map<number, bigint>()
  /** Behind what was read. */
  #read = new Map<number, { readonly offset: bigint; readonly lineage: Lineage | undefined }>()
  #merge: MessageMerge | undefined
  /** Of what is left: a partition's last record, and the offset to go on with behind it. */
  #ends = new Map<number, { readonly last: bigint; readonly next: bigint }>()
  #reader: LogReader | undefined
  #filling: Promise<void> | undefined
  /** Raised by `restore`: what is under way is not wanted any more. */
  #generation = 0
  #ahead: BatchMessage | undefined
  #pause: { readonly timer: Timer; readonly end: () => void } | undefined
  #closed: Promise<void> | undefined

  constructor(
    context: ClientContext,
    topic: TopicName,
    settings: { readonly batch: number; readonly opener: RecordOpener | undefined },
  ) {
    this.#context = context
    this.#topic = topic
    this.#batch = settings.batch
    this.#opener = settings.opener
    this.#disown = context.own({ shutdown: () => this[Symbol.asyncDispose]() })
  }

  get offsets(): ReadonlyMap<number, bigint> {
    return new Map(this.#offsets)
  }

  restore(offsets: ReadonlyMap<number, bigint>): void {
    const restored = new Map<number, bigint>()
    for (const [partition, offset] of offsets) {
      if (!Number.isInteger(partition) || partition < 0 || typeof offset !== "bigint" || offset < 0n) {
        throw new InvalidError(
          `${this.#what}: restore takes partitions from 0 with bigint offsets from 0n, not ${shown(partition)} with ${shown(offset)}`,
        )
      }
      restored.set(partition, offset)
    }
    this.#generation++
    this.#offsets = restored
    this.#read = new Map([...restored].map(([partition, offset]) => [partition, { offset, lineage: undefined }]))
    this.#forget()
  }

  async next(): Promise<CursorResult<Message>> {
    this.#refuseClosed()
    if (!this.#hasNext()) await this.#fill(0)
    return this.#take() ?? { kind: "end" }
  }

  async poll(): Promise<CursorResult<Message>[]> {
    this.#refuseClosed()
    if (!this.#hasNext()) await this.#fill(0)
    const results: CursorResult<Message>[] = []
    for (let result = this.#take(); result !== undefined; result = this.#take()) results.push(result)
    return results
  }

  async *stream(): AsyncIterable<CursorResult<Message>> {
    for (let result = await this.next(); result.kind !== "end"; result = await this.next()) yield result
  }

  async nextWithin(timeoutMs: number): Promise<CursorResult<Message>> {
    if (typeof timeoutMs !== "number" || !(timeoutMs >= 0) || timeoutMs > longestDurationMs) {
      throw new InvalidError(
        `${this.#what}: nextWithin takes a number of milliseconds from 0 to ${longestDurationMs}, not ${shown(timeoutMs)}`,
      )
    }
    this.#refuseClosed()
    const { clock } = this.#context
    const deadline = clock.monotonicMs() + timeoutMs
    let expired = false
    let wake = (): void => {}
    const timer = clock.setTimer(timeoutMs, () => {
      expired = true
      wake()
    })
    try {
      for (let result = this.#take(); ; result = this.#take()) {
        if (result !== undefined) return result
        if (expired) throw new TimeoutError(`${this.#what}: no record within ${timeoutMs} ms`, { outcome: "rejected" })
        const waitMs = Math.max(0, Math.min(tailWaitMs, deadline - clock.monotonicMs()))
        // A poll that outlives the deadline goes on, and what it brings is the next call's.
        await new Promise<void>((resolve, reject) => {
          wake = resolve
          this.#fill(waitMs).then(resolve, reject)
        })
      }
    } finally {
      timer.cancel()
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    this.#generation++
    this.#forget()
    this.#pause?.timer.cancel()
    this.#pause?.end()
    await this.#reader?.close()
    this.#disown()
  }

  get #what(): string {
    return `reader of topic "${topicText(this.#topic)}"`
  }

  #refuseClosed(): void {
    if (this.#closed !== undefined) throw new ClosedError(`${this.#what} was closed`)
  }

  #forget(): void {
    this.#merge = undefined
    this.#ahead = undefined
    this.#ends.clear()
  }

  #hasNext(): boolean {
    this.#ahead ??= this.#merge?.next()
    return this.#ahead !== undefined
  }

  #take(): CursorResult<Message> | undefined {
    if (!this.#hasNext()) return undefined
    const message = this.#ahead as BatchMessage
    this.#ahead = undefined
    const { partition, offset } = message.position
    const end = this.#ends.get(partition)
    this.#offsets.set(partition, end?.last === offset ? end.next : offset + 1n)
    try {
      return { kind: "record", value: message.open(), message }
    } catch (error) {
      if (error instanceof DecodeError) return { kind: "error", error, position: { partition, offset } }
      throw error
    }
  }

  /** Brings records, waiting up to `waitMs` for some at the tail. Whoever calls meanwhile shares the one that is under way. */
  #fill(waitMs: number): Promise<void> {
    if (this.#filling !== undefined) return this.#filling
    const filling = this.#fillOnce(waitMs).finally(() => {
      this.#filling = undefined
    })
    this.#filling = filling
    // All callers may have gone at their deadlines; the next poll fails the same way.
    filling.catch(() => {})
    return filling
  }

  async #fillOnce(waitMs: number): Promise<void> {
    for (let failures = 0; ; ) {
      this.#refuseClosed()
      const generation = this.#generation
      try {
        const runs = await this.#poll()
        if (generation !== this.#generation) continue
        this.#accept(runs)
        if (runs.some((run) => run.records > 0) || waitMs === 0) return
        return await this.#waitAtTail(runs, waitMs)
      } catch (error) {
        if (generation !== this.#generation && this.#closed === undefined) continue
        const passing = error instanceof MillraceError && (error.retryable || movedAway(error))
        if (!passing || ++failures >= tries) throw error
        await this.#rest(retryMs * failures)
      }
    }
  }

  #accept(runs: readonly Run[]): void {
    this.#merge = new MessageMerge(runs)
    for (const { partition, next, lineage, pieces } of runs) {
      this.#read.set(partition, { offset: next, lineage })
      const piece = pieces.at(-1)
      const first = pieces[0]
      if (piece === undefined || first === undefined) {
        this.#offsets.set(partition, next)
        continue
      }
      this.#offsets.set(partition, first.source.batch.offset(first.from))
      this.#ends.set(partition, { last: piece.source.batch.offset(piece.to - 1), next })
    }
  }

  /** Reads from every partition to its end. All or nothing: any failure leaves the positions as they were. */
  async #poll(): Promise<Run[]> {
    const runs = await this.#begin()
    let open = runs.filter((run) => run.next < run.end)
    let bytes = 0
    for (let changed = true; open.length > 0 && bytes < pollBytes; ) {
      this.#refuseClosed()
      this.#reader ??= this.#context.session.log.openReader({ isolation: "committed" })
      if (changed) this.#reader.set(open.map(({ place, next, lineage }) => ({ ...place, offset: next, lineage })))
      const limits = { maxRecords: this.#batch, maxBytes: requestBytes, minRecords: 1, maxWaitMs: requestWaitMs }
      const answer = await this.#reader.next(limits)
      if (answer.length === 0) throw this.#silent(open[0] as Run)
      for (const part of answer) bytes += this.#takePart(open, part)
      const rest = open.filter((run) => run.next < run.end && run.records < pollRecords)
      changed = rest.length < open.length
      open = rest
    }
    return runs
  }

  /** Where each partition stands, and how far it goes. None when there is no topic. */
  async #begin(): Promise<Run[]> {
    const { session } = this.#context
    const { stream, topic } = this.#topic
    try {
      const { partitions } = await session.catalog.describeTopic(this.#topic)
      const places = partitions.map(({ partition }) => ({ stream, topic, partition }))
      const marks = await session.log.watermarks(places)
      return places.map((place, index) => this.#runOf(place, valueOf(marks[index] as Watermarks | MillraceError)))
    } catch (error) {
      if (error instanceof NotFoundError) return []
      throw error
    }
  }

  #runOf(place: TopicPartition, { first, end, lineage }: Watermarks): Run {
    const { partition } = place
    const known = this.#read.get(partition)
    const same = known?.lineage === undefined || known.lineage === lineage
    const wanted = same ? (known?.offset ?? 0n) : 0n
    if (wanted > end) {
      throw new OffsetOutOfRangeError(
        `${this.#what}: offset ${wanted} of partition ${partition} is behind its end ${end}: it was saved of another topic, or of an earlier history`,
        { context: { ...place, offset: wanted, first, end } },
      )
    }
    return { place, partition, lineage, end, next: wanted < first ? first : wanted, records: 0, pieces: [] }
  }

  /** Takes one partition's part of an answer, and tells its bytes. */
  #takePart(open: readonly Run[], part: PartitionRead): number {
    const run = open.find(({ partition }) => partition === part.partition)
    if (run === undefined) return 0
    if (part.error !== undefined) throw part.error
    if (part.lineage !== run.lineage)
      throw new HistoryChangedError(`${this.#what}: the topic was replaced during a poll`)
    let bytes = 0
    for (const batch of part.batches) bytes += this.#takeBatch(run, batch, part)
    if (run.records < pollRecords && part.nextOffset > run.next) run.next = part.nextOffset
    return bytes
  }

  #takeBatch(run: Run, batch: EncodedBatch, part: PartitionRead & { readonly error?: undefined }): number {
    const room = pollRecords - run.records
    if (room <= 0 || batch.count === 0 || batch.lastOffset < run.next) return 0
    const from = batch.firstOffset >= run.next ? 0 : batch.indexOf(run.next)
    const to = Math.min(batch.count, from + room)
    const { stream, topic, partition } = run.place
    const source = {
      batch,
      stream,
      topic,
      partition,
      lineage: run.lineage,
      claim: undefined,
      end: part.head,
      opener: this.#opener,
    }
    run.pieces.push({ source, from, to })
    run.records += to - from
    run.next = to === batch.count ? batch.lastOffset + 1n : batch.offset(to)
    return batch.bytes
  }

  /** Returns when something new may be there, or after `waitMs`. */
  async #waitAtTail(runs: readonly Run[], waitMs: number): Promise<void> {
    if (runs.length === 0) return this.#rest(waitMs)
    this.#reader ??= this.#context.session.log.openReader({ isolation: "committed" })
    this.#reader.set(runs.map(({ place, next, lineage }) => ({ ...place, offset: next, lineage })))
    const began = this.#context.clock.monotonicMs()
    const answer = await this.#reader.next({ maxRecords: 1, maxBytes: 1, minRecords: 1, maxWaitMs: waitMs })
    if (answer.some((part) => part.error === undefined && part.batches.length > 0)) return
    // A wait that ends early and brings nothing must not make this spin.
    const early = this.#context.clock.monotonicMs() - began < waitMs / 2
    if (early && this.#closed === undefined) await this.#rest(Math.min(retryMs, waitMs))
  }

  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        this.#pause = undefined
        resolve()
      }
      this.#pause = { timer: this.#context.clock.setTimer(ms, end), end }
    })
  }

  #silent(run: Run): TimeoutError {
    return new TimeoutError(
      `${this.#what}: partition ${run.partition} has records up to ${run.end}, but none came from ${run.next} on within ${requestWaitMs} ms`,
      { outcome: "rejected", context: { ...run.place, offset: run.next } },
    )
  }
}

/** The log changed between looking and reading: looking again tells. */
function movedAway(error: MillraceError): boolean {
  return (
    error instanceof HistoryChangedError ||
    (error instanceof OffsetOutOfRangeError && error.context.end === undefined) ||
    error instanceof NotFoundError
  )
}

function valueOf<V>(outcome: V | MillraceError): V {
  if (outcome instanceof MillraceError) throw outcome
  return outcome as V
}
