import {
  ClosedError,
  CorruptionError,
  DecodeError,
  HistoryChangedError,
  InvalidError,
  MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  TimeoutError,
  type TopicName,
  UnsupportedError,
} from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { longestDurationMs, OptionReader, shown } from "../client/options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkEncryptorChoice, openerOf } from "../encryption/sealing.ts"
import type { BatchMessage, Message } from "../record/message.ts"
import type { Cursor, CursorResult } from "./cursor.ts"
import type { CursorView } from "./cursor-view.ts"
import { MessageMerge } from "./message-merge.ts"
import { type ScanPlace, type ScanRun, TopicScan } from "./topic-scan.ts"

/** Options of `topic.replay`. */
export interface ReaderOptions {
  /** The most records of one request to the backend. Default 1000. */
  readonly batch?: number
  /** What records are decrypted with; `false` gives them as they are stored. Default: the client's. */
  readonly encryptor?: Encryptor | false
}

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
  return new LogCursor(context, topic, { what: `reader of topic "${topicText(topic)}"`, options, view: rawView })
}

/** Messages as they are. */
const rawView: CursorView<Message> = {
  result: (message) => ({ kind: "record", value: message, message }),
}

/** The cursor over a log. @typeParam T What its view makes of the records. */
export class LogCursor<T> implements Cursor<T> {
  readonly #context: ClientContext
  readonly #what: string
  readonly #view: CursorView<T>
  readonly #scan: TopicScan
  readonly #disown: () => void
  readonly #abort = new AbortController()
  /** Behind what was given out, up to the last poll. */
  #offsets = new Map<number, bigint>()
  /** Behind what was read. */
  #read = new Map<number, ScanPlace>()
  #merge: MessageMerge | undefined
  #filling: Promise<void> | undefined
  /** Whether the last poll has brought nothing. */
  #caughtUp = false
  /** What came behind results that were given out: the next read's. */
  #failure: { readonly error: unknown } | undefined
  /** Raised by `restore`: what is under way is not wanted any more. */
  #generation = 0
  #pause: { readonly timer: Timer; readonly end: () => void } | undefined
  #closed: Promise<void> | undefined

  /** @param of.what How errors call the cursor. @throws InvalidError for an option */
  constructor(
    context: ClientContext,
    topic: TopicName,
    of: { readonly what: string; readonly options: ReaderOptions | undefined; readonly view: CursorView<T> },
  ) {
    const { what, options, view } = of
    const reader = new OptionReader<ReaderOptions>(what, options, ["batch", "encryptor"])
    const batch = reader.whole("batch", { min: 1, max: 1_000_000, fallback: 1000 })
    const opener = openerOf(context, checkEncryptorChoice(what, options?.encryptor))
    this.#context = context
    this.#what = what
    this.#view = view
    this.#scan = new TopicScan(context, topic, { batch, opener, what })
    this.#disown = context.own({ shutdown: () => this[Symbol.asyncDispose]() })
  }

  get offsets(): ReadonlyMap<number, bigint> {
    const offsets = new Map(this.#offsets)
    for (const [partition, offset] of this.#merge?.offsets() ?? []) offsets.set(partition, offset)
    return offsets
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
    this.#scan.forget()
    this.#read = new Map([...restored].map(([partition, offset]) => [partition, { offset, lineage: undefined }]))
    this.#merge = undefined
    this.#failure = undefined
  }

  /** Without a promise chain when something is there. */
  next(): Promise<CursorResult<T>> {
    try {
      this.#refuseClosed()
      const result = this.#take()
      return result === undefined ? this.#nextPoll() : Promise.resolve(result)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async poll(): Promise<CursorResult<T>[]> {
    this.#refuseClosed()
    const results: CursorResult<T>[] = []
    for (;;) {
      if (this.#merge?.empty !== false && this.#failure === undefined) await this.#fill(0)
      try {
        for (let result = this.#take(); result !== undefined; result = this.#take()) results.push(result)
      } catch (error) {
        if (results.length === 0) throw error
        this.#failure = { error }
      }
      // Another call may have had everything of a poll that both waited for.
      if (results.length > 0 || this.#caughtUp) return results
    }
  }

  stream(): AsyncIterable<CursorResult<T>> {
    return { [Symbol.asyncIterator]: () => new CursorIterator(this) }
  }

  async nextWithin(timeoutMs: number): Promise<CursorResult<T>> {
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
    for (const [partition, offset] of this.#merge?.offsets() ?? []) this.#offsets.set(partition, offset)
    this.#merge = undefined
    this.#abort.abort()
    this.#pause?.timer.cancel()
    this.#pause?.end()
    await this.#scan.close()
    this.#disown()
  }

  #refuseClosed(): void {
    if (this.#closed !== undefined) throw new ClosedError(`${this.#what} was closed`)
  }

  async #nextPoll(): Promise<CursorResult<T>> {
    for (;;) {
      await this.#fill(0)
      const result = this.#take()
      if (result !== undefined) return result
      // Other calls may have had everything of a poll that all waited for.
      if (this.#caughtUp) return { kind: "end" }
    }
  }

  #take(): CursorResult<T> | undefined {
    this.#tellFailure()
    const merge = this.#merge
    if (merge === undefined) return undefined
    const message = merge.next()
    if (message === undefined) return failedResult(merge)
    try {
      return this.#view.result(message.open())
    } catch (error) {
      if (isRecordsOwn(error)) return { kind: "error", error, position: message.position }
      throw error
    }
  }

  #tellFailure(): void {
    const failure = this.#failure
    this.#failure = undefined
    if (failure !== undefined) throw failure.error
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
        const runs = await this.#scan.poll(this.#read)
        this.#refuseClosed()
        await this.#view.prepare?.(() => messagesOf(runs), { signal: this.#abort.signal })
        if (generation !== this.#generation) continue
        this.#accept(runs)
        if (this.#merge?.empty === false || waitMs === 0) return
        return await this.#waitAtTail(runs, waitMs)
      } catch (error) {
        this.#refuseClosed()
        if (generation !== this.#generation) continue
        const passing = error instanceof MillraceError && (error.retryable || movedAway(error))
        if (!passing || ++failures >= tries) throw error
        await this.#rest(retryMs * failures)
      }
    }
  }

  #accept(runs: readonly ScanRun[]): void {
    for (const [partition, offset] of this.#merge?.offsets() ?? []) this.#offsets.set(partition, offset)
    this.#merge = new MessageMerge(runs)
    this.#caughtUp = this.#merge.empty
    for (const { partition, next, failure, lineage } of runs) {
      this.#read.set(partition, { offset: failure?.next ?? next, lineage })
    }
    this.#scan.readAhead(runs)
  }

  /** Returns when something new may be there, or after `waitMs`. */
  async #waitAtTail(runs: readonly ScanRun[], waitMs: number): Promise<void> {
    if (runs.length === 0) return this.#rest(waitMs)
    const began = this.#context.clock.monotonicMs()
    if (await this.#scan.waitAtTail(runs, waitMs)) return
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
}

/** All up to the tail; who leaves early goes on with a later call. */
class CursorIterator<T> implements AsyncIterator<CursorResult<T>, undefined> {
  readonly #cursor: Cursor<T>
  #over = false

  constructor(cursor: Cursor<T>) {
    this.#cursor = cursor
  }

  async next(): Promise<IteratorResult<CursorResult<T>, undefined>> {
    if (this.#over) return { done: true, value: undefined }
    try {
      const value = await this.#cursor.next()
      if (value.kind !== "end") return { done: false, value }
    } catch (error) {
      this.#over = true
      throw error
    }
    this.#over = true
    return { done: true, value: undefined }
  }

  async return(): Promise<IteratorResult<CursorResult<T>, undefined>> {
    this.#over = true
    return { done: true, value: undefined }
  }
}

/** What cannot be read, in its place. */
function failedResult<T>(merge: MessageMerge): CursorResult<T> | undefined {
  const failure = merge.failure()
  if (failure === undefined) return undefined
  const { error, partition, offset } = failure
  return { kind: "error", error, position: { partition, offset } }
}

/** Everything that a poll has read, as far as it can be opened: the rest is told in its place. */
function messagesOf(runs: readonly ScanRun[]): Message[] {
  const merge = new MessageMerge(runs.map((run) => ({ ...run, failure: undefined })))
  const messages: Message[] = []
  for (let message: BatchMessage | undefined = merge.next(); message !== undefined; message = merge.next()) {
    try {
      messages.push(message.open())
    } catch (error) {
      if (!isRecordsOwn(error)) throw error
    }
  }
  return messages
}

/** Whether it is one record that cannot be opened or decoded: it is told in the record's place. */
function isRecordsOwn(error: unknown): error is DecodeError | CorruptionError | UnsupportedError {
  return error instanceof DecodeError || error instanceof CorruptionError || error instanceof UnsupportedError
}

/** The log changed between looking and reading: looking again tells. */
function movedAway(error: MillraceError): boolean {
  return (
    error instanceof HistoryChangedError ||
    (error instanceof OffsetOutOfRangeError && error.context.end === undefined) ||
    error instanceof NotFoundError
  )
}
