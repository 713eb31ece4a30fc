import { ClosedError, MillraceError, StorageError, type TopicDescription } from "@millrace/contract"
import { backoffMs, type Clock, type Timer } from "@millrace/runtime"
import { longestBackoffMs } from "../client/attempts.ts"
import { type Dispatch, decodeJournal, encodeJournal, type JournalEntry } from "./journal-entry.ts"
import { JournalState } from "./journal-state.ts"
import type { SpoolStore } from "./spool-store.ts"

/** A snapshot takes the place of what was told before, when that has grown to this many bytes, and to several times the snapshot. */
const snapshotAfterBytes = 1 << 20
const snapshotRatio = 4

/** What may wait to be told before it is told unasked. */
const mostPending = 256

/** How long what was told waits for company, in ms, when nothing else is on its way. */
const soonMs = 20

/** The first wait after an append that failed and may succeed later. */
const retryMs = 100

/** Who listens to a journal. */
export interface JournalOwner {
  /** This mark is stored: what lies below it is not needed any more. */
  onLow(lane: number, offset: bigint): void
  /** Nothing can be told any more, so that nothing may go out. */
  onFailed(error: MillraceError): void
}

/**
 * The log of what the spool did with its records, so that a restart can go on there. Entries are appended in order, all that wait
 * together with one sync; an entry counts when its append has settled. An append that fails for want of room is tried again, with waits
 * up to 30 s, until the journal is closed.
 */
export class Journal {
  /** As the last stored record left it. */
  readonly state: JournalState
  readonly #store: SpoolStore
  readonly #topic: TopicDescription
  readonly #clock: Clock
  #owner: JournalOwner | undefined
  #number: number
  #nextOrdinal: number
  #pending: JournalEntry[] = []
  #waiting: PromiseWithResolvers<void>[] = []
  #isRunning = false
  /** Bytes of records since the last snapshot, and its own. */
  #bytes = Number.POSITIVE_INFINITY
  #snapshotBytes = 0
  #error: MillraceError | undefined
  #timer: Timer | undefined
  #soon: Timer | undefined
  #wake: (() => void) | undefined

  private constructor(
    parts: { readonly store: SpoolStore; readonly topic: TopicDescription; readonly clock: Clock },
    state: JournalState,
    number: number,
  ) {
    this.#store = parts.store
    this.#topic = parts.topic
    this.#clock = parts.clock
    this.state = state
    this.#number = number
    this.#nextOrdinal = state.nextOrdinal
  }

  /** Reads what was told. @throws StorageError for another format, CorruptionError, and whatever the store says */
  static async open(store: SpoolStore, clock: Clock): Promise<Journal> {
    const topic = await store.topic("journal")
    const state = new JournalState()
    const { first, end } = await store.watermarks(topic)
    let number = -1
    let at = first
    const reader = store.reader(topic, first)
    try {
      while (at < end) {
        const read = await reader.next()
        for (const batch of read.batches) {
          for (let i = batch.indexOf(at); i < batch.count; i++) {
            const record = decodeJournal(batch.payload(i) ?? new Uint8Array(), store.directory)
            if (record.number <= number) continue
            number = record.number
            for (const entry of record.entries) state.apply(entry)
          }
        }
        at = read.nextOffset
      }
    } finally {
      await reader.close()
    }
    return new Journal({ store, topic, clock }, state, number)
  }

  listen(owner: JournalOwner): void {
    this.#owner = owner
  }

  /** A number for a batch that is about to go out. */
  takeOrdinal(): number {
    return this.#nextOrdinal++
  }

  /** Tells it some time: with what is told next, or when enough waits. */
  note(entry: JournalEntry): void {
    if (this.#error !== undefined) return
    this.#pending.push(entry)
    if (this.#pending.length >= mostPending) this.#start()
  }

  /** Tells it; settles once it is stored, and with it all that was told before. @throws what keeps the journal from being written */
  tell(entry: JournalEntry): Promise<void> {
    this.note(entry)
    return this.flush()
  }

  /** Tells a batch that is about to go out. */
  dispatch(dispatch: Dispatch): Promise<void> {
    return this.tell({ kind: "dispatch", dispatch, settled: false })
  }

  /** Settles once all that was told is stored. */
  flush(): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error)
    if (this.#pending.length === 0 && !this.#isRunning) return Promise.resolve()
    const waiter = Promise.withResolvers<void>()
    this.#waiting.push(waiter)
    this.#start()
    return waiter.promise
  }

  /** Stores what was told, unless something else does within some milliseconds. */
  flushSoon(): void {
    if (this.#error !== undefined || this.#soon !== undefined) return
    const flush = (): void => {
      this.#soon = undefined
      if (this.#pending.length > 0) this.#start()
    }
    this.#soon = this.#clock.setTimer(soonMs, flush, { background: true })
  }

  /** Tells nothing more. Whoever waits is refused. */
  close(error: MillraceError = new ClosedError("the spool was closed")): void {
    this.#error ??= error
    this.#soon?.cancel()
    this.#timer?.cancel()
    this.#wake?.()
    if (!this.#isRunning) this.#refuse(this.#error)
  }

  #start(): void {
    if (this.#isRunning) return
    this.#isRunning = true
    // Everything that is told in this turn shares one record.
    queueMicrotask(() => void this.#run())
  }

  /** Never rejects: a failure reaches those who wait, and the owner. */
  async #run(): Promise<void> {
    while (this.#error === undefined && (this.#pending.length > 0 || this.#waiting.length > 0)) {
      const entries = this.#pending
      const waiting = this.#waiting
      this.#pending = []
      this.#waiting = []
      try {
        if (entries.length > 0) await this.#append(entries)
        for (const waiter of waiting) waiter.resolve()
      } catch (thrown) {
        this.#waiting.push(...waiting)
        this.#fail(thrown)
      }
    }
    this.#isRunning = false
    if (this.#error !== undefined) this.#refuse(this.#error)
  }

  async #append(entries: readonly JournalEntry[]): Promise<void> {
    const isSnapshot = this.#bytes > Math.max(snapshotAfterBytes, this.#snapshotBytes * snapshotRatio)
    const told = isSnapshot ? [...this.state.snapshot(), ...entries] : entries
    const payload = encodeJournal(++this.#number, told)
    const offset = await this.#appendUntilStored(payload)
    for (const entry of told) this.state.apply(entry)
    if (isSnapshot) this.#snapshotBytes = payload.length
    this.#bytes = isSnapshot ? 0 : this.#bytes + payload.length
    for (const entry of entries) if (entry.kind === "low") this.#owner?.onLow(entry.lane, entry.offset)
    if (isSnapshot) await this.#trim(offset)
  }

  /** What cannot be given up for want of room goes with the next snapshot. */
  async #trim(before: bigint): Promise<void> {
    try {
      await this.#store.trim(this.#topic, before)
    } catch (error) {
      if (!(error instanceof MillraceError) || !error.retryable) throw error
    }
  }

  async #appendUntilStored(payload: Uint8Array): Promise<bigint> {
    for (let retry = 0; ; retry++) {
      try {
        return (await this.#store.appendPayload(this.#topic, payload)).base
      } catch (error) {
        const isPassing = error instanceof MillraceError && error.retryable
        if (!isPassing || this.#error !== undefined) throw error
        await this.#rest(backoffMs(retry, retryMs, longestBackoffMs))
        if (this.#error !== undefined) throw this.#error
      }
    }
  }

  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
      this.#timer = this.#clock.setTimer(ms, resolve, { background: true })
    })
  }

  #fail(thrown: unknown): void {
    if (this.#error !== undefined) return
    const why = thrown instanceof Error ? thrown.message : String(thrown)
    this.#error = new StorageError(`the journal of the spool cannot be written, so that nothing goes out: ${why}`, {
      cause: thrown,
    })
    this.#owner?.onFailed(this.#error)
  }

  #refuse(error: MillraceError): void {
    const waiting = this.#waiting
    this.#waiting = []
    this.#pending = []
    for (const waiter of waiting) waiter.reject(error)
  }
}
