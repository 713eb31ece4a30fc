import { type EncodedBatch, Headers, MillraceError, TimeoutError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { Publisher } from "../producer/publisher.ts"
import { toOutgoing } from "../producer/send-call.ts"
import type { PreparedRecord, SendableRecord } from "../record/outgoing-record.ts"
import { ForwardCall, type ForwardContent } from "./forward-call.ts"
import type { Journal } from "./journal.ts"
import type { Dispatch } from "./journal-entry.ts"
import type { SpoolLane } from "./lane.ts"
import { appendOffsets, type OffsetRun } from "./offset-runs.ts"
import { spooledRecord } from "./spool-record.ts"

/** What a recovery works with. */
export interface RecoveryContext {
  readonly journal: Journal
  readonly publisher: Publisher
  readonly clock: Clock
  readonly keepTimes: boolean
  readonly onExpired: "resend" | "report"
  /** So many records go out again although they may be stored, and the backend cannot tell. */
  readonly onDoubt: (records: number) => void
}

/** A batch that was on its way, with the records that were found of it. */
interface Course {
  readonly dispatch: Dispatch
  readonly count: number
  readonly records: (SendableRecord | undefined)[]
  found: number
}

/** Records that were on their way to no batch. */
const free = -1
/** Records that are done. */
const isDone = -2

/**
 * What a restart does before a lane goes on: it reads what lay above the low-water mark, leaves out what was confirmed, makes the batches
 * again that were on their way, exactly as they were, and puts them ahead of everything else.
 */
export class Recovery {
  /** Behind the last record of a batch that the journal knows: what follows was never on its way. */
  readonly end: bigint
  readonly #lane: SpoolLane
  readonly #context: RecoveryContext
  readonly #low: bigint
  readonly #courses: Course[] = []
  /** Of each offset above the mark: which course it belongs to, and where in it. */
  readonly #owners: Int32Array
  readonly #places: Int32Array
  readonly #fresh: { readonly records: SendableRecord[]; readonly runs: { first: bigint; length: number }[] }[] = []

  constructor(lane: SpoolLane, context: RecoveryContext) {
    this.#lane = lane
    this.#context = context
    this.#low = lane.progress.low
    const known = [...context.journal.state.dispatches.values()].filter(({ dispatch }) => dispatch.lane === lane.lane)
    let end = this.#low
    for (const one of known) if (one.end > end) end = one.end
    this.end = end
    const length = Number(end - this.#low)
    this.#owners = new Int32Array(length).fill(free)
    this.#places = new Int32Array(length)
    for (const { dispatch, settled } of known.sort((a, b) => a.dispatch.ordinal - b.dispatch.ordinal)) {
      this.#plan(dispatch, settled)
    }
  }

  /** Takes what was read from `at` on. Answers where to read on. */
  take(read: { readonly batches: readonly EncodedBatch[]; readonly nextOffset: bigint }, at: bigint): bigint {
    const fresh = { records: [] as SendableRecord[], runs: [] as { first: bigint; length: number }[] }
    let bytes = 0
    let done = 0
    for (const batch of read.batches) {
      bytes += batch.bytes
      for (let i = batch.indexOf(at); i < batch.count; i++) {
        const offset = batch.offset(i)
        const owner = offset < this.end ? (this.#owners[Number(offset - this.#low)] as number) : free
        if (owner === isDone) {
          done++
          continue
        }
        const record = spooledRecord(batch, i, this.#context.keepTimes)
        if (owner === free) {
          fresh.records.push(record)
          appendOffsets(fresh.runs, offset, 1)
        } else {
          const course = this.#courses[owner] as Course
          course.records[this.#places[Number(offset - this.#low)] as number] = record
          course.found++
        }
      }
    }
    this.#lane.progress.read(read.nextOffset, bytes, done)
    if (fresh.records.length > 0) this.#fresh.push(fresh)
    return read.nextOffset
  }

  /** Sends everything on its way: what was before, in its order, then the rest. */
  async submit(): Promise<void> {
    const isKnown = this.#courses.length === 0 || (await this.#prepared())
    /** Partitions in which a batch could not be made again: nothing behind it may pass. */
    const broken = new Set<number>()
    for (const course of this.#courses) {
      if (course.found === 0) {
        this.#void(course)
        continue
      }
      const { partition } = course.dispatch
      const reason = !isKnown || broken.has(partition) ? "expired" : this.#restore(course)
      if (reason === "restored") continue
      if (reason === "replaced") {
        this.#void(course)
        this.#forward(present(course))
        continue
      }
      broken.add(partition)
      this.#expired(course)
    }
    for (const content of this.#fresh) this.#forward(content)
  }

  #plan(dispatch: Dispatch, settled: boolean): void {
    const owner = settled ? isDone : this.#courses.length
    let place = 0
    for (const { first, length } of dispatch.runs) {
      for (let i = 0; i < length; i++, place++) {
        const at = Number(first - this.#low) + i
        if (at < 0 || this.#owners[at] === isDone) continue
        this.#owners[at] = owner
        this.#places[at] = place
      }
    }
    const records = settled ? [] : new Array<SendableRecord | undefined>(place)
    if (!settled) this.#courses.push({ dispatch, count: place, records, found: 0 })
  }

  /**
   * Whether it is known which history the topic has; one that is not there has none. Without that no batch can be made again. What keeps
   * the topic from being described is told to each of the records, when they come.
   */
  async #prepared(): Promise<boolean> {
    try {
      await this.#context.publisher.ready(this.#lane.name)
      return true
    } catch (error) {
      if (error instanceof MillraceError && (error.kind === "cancelled" || error.kind === "closed")) throw error
      return error instanceof MillraceError && error.kind === "not-found"
    }
  }

  /** Whether the batch is on its way again, or why not: its topic is another one now, or nothing can tell its resend. */
  #restore(course: Course): "restored" | "replaced" | "expired" {
    const { dispatch, records, found, count } = course
    if (found < count) return "expired"
    const { publisher, clock } = this.#context
    const { runs } = dispatch
    const call = new ForwardCall(this.#lane, { records: records as SendableRecord[], runs }, clock.monotonicMs())
    const restoration = publisher.restore(call, {
      ...dispatch,
      records: records as SendableRecord[],
      ageMs: this.#ageMs(dispatch),
    })
    // All of it is in its batch: the call settles with that.
    if (restoration === "restored") call.taken()
    return restoration
  }

  #expired(course: Course): void {
    const { dispatch } = course
    const content = present(course)
    const records = content.records.map((record, i) => withId(record, dispatch.id + BigInt(dispatch.skipped + i)))
    if (this.#context.onExpired === "resend") {
      this.#void(course)
      this.#context.onDoubt(records.length)
      this.#forward({ records, runs: content.runs, inDoubt: true })
      return
    }
    // It keeps its place in the journal until somebody has it: without that a next process would take it for new.
    const where = `partition ${dispatch.partition}`
    const message = `a batch of ${records.length} records for ${where} was on its way when the process ended, and the backend cannot tell any more whether it has it`
    const error = new TimeoutError(message, { retryable: false, context: { partition: dispatch.partition } })
    const outgoing = records.map((record) => ({ ...toOutgoing(record), partition: dispatch.partition }))
    this.#lane.onFailed(content.runs, outgoing, error)
  }

  #forward(content: ForwardContent): void {
    const call = new ForwardCall(this.#lane, content, this.#context.clock.monotonicMs())
    this.#context.publisher.take(call)
    this.#context.publisher.dispatch(call)
  }

  #void({ dispatch }: Course): void {
    this.#context.journal.note({ kind: "void", ordinals: [dispatch.ordinal] })
  }

  #ageMs({ sentMicros }: Dispatch): number {
    return Math.max(0, Number(this.#context.clock.nowMicros() - sentMicros) / 1000)
  }
}

/** What was found of a batch: all of it, unless the rest was handed over before. */
function present(course: Course): { readonly records: SendableRecord[]; readonly runs: OffsetRun[] } {
  const records: SendableRecord[] = []
  const runs: { first: bigint; length: number }[] = []
  let place = 0
  for (const { first, length } of course.dispatch.runs) {
    for (let i = 0; i < length; i++, place++) {
      const record = course.records[place]
      if (record === undefined) continue
      records.push(record)
      appendOffsets(runs, first + BigInt(i), 1)
    }
  }
  return { records, runs }
}

function withId(record: SendableRecord, id: bigint): PreparedRecord {
  if (record instanceof Uint8Array) {
    return { payload: record, key: null, headers: Headers.empty, id, timestampMicros: undefined, partition: -1 }
  }
  return record.id === undefined ? { ...record, id } : record
}
