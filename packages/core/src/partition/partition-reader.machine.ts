/**
 * Reads one partition for a consumer: where it stands, what of an answer is new, and what to do when the position is out of range, the
 * history has changed, or a poll failed. Pure: events in, commands out, the time inside the event.
 *
 *     phase      leaves by                                      to
 *     starting   started | startFailed                          reading | waiting, failed
 *     reading    readFailed (history, range) | readFailed       locating | waiting, failed
 *                doubted                                        locating; so do waiting and failed, where reading is what failed
 *     locating   located | locateFailed                         reading, failed | waiting, failed
 *     waiting    due                                            starting, reading, locating (what failed); failed once it has stopped
 *     failed     errorTaken                                     waiting
 *     any        seek, skip, again                              reading; starting where no start is known (not for skip and again)
 *     any        close                                          closed
 *
 * An event that the phase does not expect is an answer that came too late, and is dropped.
 *
 * A partition that is refused (`isRefusal`) is tried again after a wait that doubles with each refusal in a row; after six it stops: its
 * error comes again and again, and the backend is asked no more, until `seek` or `skip` (table 2.5 of the options).
 */
import {
  type EncodedBatch,
  HistoryChangedError,
  type Lineage,
  MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  type TopicPartition,
} from "@millrace/contract"
import { covers, firstWanted } from "./batch-entry.ts"
import { damagedError, gapError, rangeError } from "./partition-errors.ts"
import { isRefusal, refusalsToStop, stoppedError } from "./refusals.ts"

/** What a partition's reader is doing; `failed`: its error waits to be handed out. */
export type PartitionReaderPhase = "starting" | "reading" | "locating" | "waiting" | "failed" | "closed"
type Phase = PartitionReaderPhase
type Step = "starting" | "reading" | "locating"

export interface PartitionReaderPolicy {
  readonly onOutOfRange: "first" | "next" | "fail"
  readonly onMissing: "fail" | "wait"
  /** The wait after a failure, in ms. */
  readonly retryIntervalMs: number
  /** How often a failed start is tried again before its error is handed out, and how long after. */
  readonly initRetries: number
  readonly initRetryIntervalMs: number
  /** Whether the backend's offsets can have holes; where not, a hole is damage. */
  readonly holes: boolean
}

/** `polling`: a poll is under way whose answer may still speak of an older position. `atMs`: monotonic time. */
export type PartitionReaderEvent =
  | {
      readonly type: "started"
      readonly offset: bigint
      readonly lineage: Lineage
      /** Records of the batch that holds `offset` are left out up to this append time. */
      readonly fromMicros?: bigint | undefined
      readonly polling: boolean
    }
  | { readonly type: "startFailed"; readonly error: MillraceError; readonly atMs: number }
  | {
      readonly type: "read"
      readonly batches: readonly EncodedBatch[]
      readonly nextOffset: bigint
      readonly lineage: Lineage
      readonly atMs: number
    }
  | { readonly type: "readFailed"; readonly error: MillraceError; readonly atMs: number }
  | {
      readonly type: "located"
      readonly first: bigint
      readonly end: bigint
      readonly lineage: Lineage
      readonly polling: boolean
      readonly atMs: number
    }
  | { readonly type: "locateFailed"; readonly error: MillraceError; readonly atMs: number }
  | { readonly type: "due"; readonly polling: boolean }
  /** Read on at `offset`; what is not handed out is void. With `lineage`: as it was when the place was looked up. */
  | {
      readonly type: "seek"
      readonly offset: bigint
      readonly lineage?: Lineage
      readonly fromMicros?: bigint | undefined
      readonly polling: boolean
    }
  /** Read on at `offset`, which was reached before, with a fresh reader: what was read ahead is void, what is handed out is not. */
  | { readonly type: "again"; readonly offset: bigint }
  /** Read on at `next`; what lies before it counts as read. */
  | { readonly type: "skip"; readonly next: bigint; readonly polling: boolean }
  | { readonly type: "errorTaken"; readonly atMs: number }
  /** Somebody else was told that the history is over. */
  | { readonly type: "doubted" }
  | { readonly type: "close" }

export type PartitionReaderCommand =
  /** Find the position to start from: answer `started` or `startFailed`. */
  | { readonly type: "start" }
  /** Tell the log's reader where this partition stands (`offset`, `lineage`). */
  | { readonly type: "set" }
  /** Ask for the watermarks: answer `located` or `locateFailed`. */
  | { readonly type: "locate" }
  /** Records `from` … of a batch are next. When they are handled, progress is `after`. */
  | { readonly type: "accept"; readonly batch: EncodedBatch; readonly from: number; readonly after: bigint }
  /** Nothing to hand out, yet the position moved: over holes, markers or filtered records. */
  | { readonly type: "advance"; readonly next: bigint }
  /** Throw away what was read and not handed out. */
  | { readonly type: "drop" }
  /** The topic has a new history: progress of the old one is void, reading goes on at `offset`. */
  | { readonly type: "sourceChanged"; readonly offset: bigint }
  /** The position moved from `from`, which is not in the log, to `to`; back when it lay behind the end. */
  | { readonly type: "skipped"; readonly from: bigint; readonly to: bigint }
  /** Hand out this error behind what was read before; answer `errorTaken` when somebody got it. */
  | { readonly type: "fail"; readonly error: MillraceError }
  /** Answer `due` at this monotonic time. */
  | { readonly type: "wake"; readonly atMs: number }

const nothing: readonly PartitionReaderCommand[] = []

export class PartitionReaderMachine {
  readonly #partition: TopicPartition
  readonly #policy: PartitionReaderPolicy
  #phase: Phase = "starting"
  #offset = 0n
  #lineage: Lineage = ""
  /** The position was set while a poll was under way: its answer may be of the old position, and is believed only when it covers the new. */
  #doubtful = false
  #fromMicros: bigint | undefined
  /** Where reading was last told to begin, for `again`. */
  #place: { readonly offset: bigint; readonly fromMicros: bigint | undefined } | undefined
  /** The watermarks allow the position, and the backend refused it even so: once more, and it is waited. */
  #astray = false
  #startTries = 0
  /** What `waiting` goes on with, and what `failed` will. */
  #resume: Step = "starting"
  #failedAtMs = 0
  /** Why the position is being located. */
  #lost: "range" | "history" | "gap" = "range"
  /** Behind the records that are missing. */
  #gapEnd = 0n
  /** Where to go on once the start is known, in place of it. */
  #seekBeforeStart: { readonly offset: bigint; readonly fromMicros: bigint | undefined } | undefined
  #refusals = 0
  /** Refused too often: this comes again until `seek`. */
  #stopped: MillraceError | undefined

  constructor(partition: TopicPartition, policy: PartitionReaderPolicy) {
    this.#partition = partition
    this.#policy = policy
  }

  /** For diagnostics. */
  get phase(): PartitionReaderPhase {
    return this.#phase
  }
  /** Whether the partition was refused so often that it is not read again before `seek`. */
  get stopped(): boolean {
    return this.#stopped !== undefined
  }
  /** Whether the log's reader should read this partition now. */
  get reading(): boolean {
    return this.#phase === "reading"
  }
  /** Whether the start is still to be found. */
  get starting(): boolean {
    return (
      this.#phase === "starting" ||
      ((this.#phase === "waiting" || this.#phase === "failed") && this.#resume === "starting")
    )
  }
  /** The next offset to read. */
  get offset(): bigint {
    return this.#offset
  }
  get lineage(): Lineage {
    return this.#lineage
  }

  handle(event: PartitionReaderEvent): readonly PartitionReaderCommand[] {
    if (this.#phase === "closed") return nothing
    switch (event.type) {
      case "started":
        return this.#phase === "starting" ? this.#started(event) : nothing
      case "startFailed":
        return this.#phase === "starting" ? this.#startFailed(event.error, event.atMs) : nothing
      case "read":
        return this.#phase === "reading" ? this.#read(event) : nothing
      case "readFailed":
        return this.#phase === "reading" ? this.#readFailed(event.error, event.atMs) : nothing
      case "located":
        return this.#phase === "locating" ? this.#located(event) : nothing
      case "locateFailed":
        return this.#phase === "locating" ? this.#failed(event.error, event.atMs, "locating") : nothing
      case "due":
        return this.#phase === "waiting" ? this.#due(event.polling) : nothing
      case "seek":
        return this.#seek(event)
      case "again":
        return this.starting ? nothing : this.#again(event.offset)
      case "skip":
        return this.#skip(event.next, event.polling)
      case "errorTaken":
        return this.#phase === "failed" ? this.#errorTaken(event.atMs) : nothing
      case "doubted":
        return this.#doubted()
      case "close":
        this.#phase = "closed"
        return nothing
    }
  }

  #started(event: PartitionReaderEvent & { type: "started" }): readonly PartitionReaderCommand[] {
    const { offset, fromMicros } = this.#seekBeforeStart ?? event
    this.#lineage = event.lineage
    this.#stand(offset, fromMicros)
    this.#seekBeforeStart = undefined
    this.#startTries = 0
    return this.#go("reading", event.polling)
  }

  #startFailed(error: MillraceError, atMs: number): readonly PartitionReaderCommand[] {
    const again = this.#startTries < this.#policy.initRetries
    this.#startTries = again ? this.#startTries + 1 : 0
    return again
      ? this.#wait(atMs + this.#policy.initRetryIntervalMs, "starting")
      : this.#failed(error, atMs, "starting")
  }

  #read(event: PartitionReaderEvent & { type: "read" }): readonly PartitionReaderCommand[] {
    if (event.lineage !== this.#lineage) return this.#doubtful ? this.#go("reading", false) : this.#lose("history")
    if (this.#doubtful) {
      this.#doubtful = false
      if (!covers(event.batches, this.#offset)) return this.#go("reading", false)
    }
    this.#refusals = 0
    this.#astray = false
    const commands: PartitionReaderCommand[] = []
    let position = this.#offset
    for (const batch of event.batches) {
      if (batch.count === 0 || batch.lastOffset < position) continue
      if (batch.firstOffset > position && !this.#policy.holes) {
        this.#offset = position
        this.#gapEnd = batch.firstOffset
        return [...commands, ...this.#lose("gap")]
      }
      let from: number
      try {
        from = firstWanted(batch, position, this.#fromMicros)
        this.#fromMicros = undefined
      } catch (error) {
        if (!(error instanceof MillraceError)) throw error
        this.#offset = position
        return [...commands, ...this.#failed(damagedError(this.#partition, batch, error), event.atMs, "reading")]
      }
      position = batch.lastOffset + 1n
      commands.push({ type: "accept", batch, from, after: position })
    }
    return this.#moved(commands, position, event.nextOffset)
  }

  /** The position behind an answer: its `nextOffset`, which jumps over holes, and never back. */
  #moved(commands: PartitionReaderCommand[], position: bigint, nextOffset: bigint): readonly PartitionReaderCommand[] {
    const before = this.#offset
    const next = nextOffset > position ? nextOffset : position
    this.#offset = next
    const last = commands.at(-1)
    if (last?.type === "accept") commands[commands.length - 1] = { ...last, after: next }
    else if (next > before) commands.push({ type: "advance", next })
    if (nextOffset < next) commands.push({ type: "set" })
    return commands
  }

  #readFailed(error: MillraceError, atMs: number): readonly PartitionReaderCommand[] {
    if (error instanceof HistoryChangedError) return this.#lose("history")
    if (error instanceof OffsetOutOfRangeError) return this.#lose("range")
    // It may be of a position that is not ours any more: asked anew, it comes again if it is of this one.
    if (this.#doubtful) return this.#go("reading", false)
    return this.#failed(error, atMs, "reading")
  }

  /** A start, and a look that is under way or waits, find out by themselves. */
  #doubted(): readonly PartitionReaderCommand[] {
    const waits = this.#phase === "waiting" || this.#phase === "failed"
    return this.#phase === "reading" || (waits && this.#resume === "reading") ? this.#lose("history") : nothing
  }

  #lose(why: "range" | "history" | "gap"): readonly PartitionReaderCommand[] {
    this.#lost = why
    return this.#go("locating", false)
  }

  #located(event: PartitionReaderEvent & { type: "located" }): readonly PartitionReaderCommand[] {
    const { first, end, lineage, polling, atMs } = event
    const from = this.#offset
    if (lineage !== this.#lineage) {
      return this.#newHistory(lineage, first, polling)
    }
    if (this.#lost === "history") return this.#wait(atMs + this.#policy.retryIntervalMs, "reading")
    if (from >= first && from <= end) {
      if (this.#lost === "gap") return this.#failed(gapError(this.#partition, from, this.#gapEnd), atMs, "reading")
      if (this.#astray) return this.#wait(atMs + this.#policy.retryIntervalMs, "reading")
      this.#astray = true
      return this.#go("reading", polling)
    }
    if (this.#policy.onOutOfRange === "fail") {
      return this.#failed(rangeError(this.#partition, from, first, end), atMs, "reading")
    }
    this.#offset = this.#policy.onOutOfRange === "first" ? first : end
    return [{ type: "skipped", from, to: this.#offset }, ...this.#go("reading", polling)]
  }

  #newHistory(lineage: Lineage, offset: bigint, polling: boolean): readonly PartitionReaderCommand[] {
    this.#lineage = lineage
    this.#stand(offset, undefined)
    return [{ type: "drop" }, { type: "sourceChanged", offset }, ...this.#go("reading", polling)]
  }

  #failed(error: MillraceError, atMs: number, resume: Step): readonly PartitionReaderCommand[] {
    const missing = error instanceof NotFoundError && this.#policy.onMissing === "wait"
    if (error.retryable || missing) return this.#wait(atMs + this.#policy.retryIntervalMs, resume)
    this.#phase = "failed"
    this.#resume = resume
    this.#failedAtMs = atMs
    this.#refusals = isRefusal(error) ? this.#refusals + 1 : 0
    if (this.#refusals >= refusalsToStop) this.#stopped = stoppedError(error)
    return [{ type: "fail", error: this.#stopped ?? error }]
  }

  #errorTaken(atMs: number): readonly PartitionReaderCommand[] {
    const waitMs = this.#policy.retryIntervalMs * 2 ** Math.max(0, this.#refusals - 1)
    return this.#wait((this.#stopped === undefined ? this.#failedAtMs : atMs) + waitMs, this.#resume)
  }

  #due(polling: boolean): readonly PartitionReaderCommand[] {
    if (this.#stopped === undefined) return this.#go(this.#resume, polling)
    this.#phase = "failed"
    return [{ type: "fail", error: this.#stopped }]
  }

  #wait(atMs: number, resume: Step): readonly PartitionReaderCommand[] {
    this.#phase = "waiting"
    this.#resume = resume
    return [{ type: "wake", atMs }]
  }

  #go(step: Step, polling: boolean): readonly PartitionReaderCommand[] {
    this.#phase = step
    if (step === "starting") return [{ type: "start" }]
    if (step === "locating") return [{ type: "locate" }]
    this.#doubtful = polling
    return [{ type: "set" }]
  }

  #seek(event: PartitionReaderEvent & { type: "seek" }): readonly PartitionReaderCommand[] {
    const { offset, lineage, fromMicros, polling } = event
    this.#refusals = 0
    this.#stopped = undefined
    if (this.starting) {
      this.#seekBeforeStart = { offset, fromMicros }
      return this.#phase === "starting" ? nothing : [{ type: "drop" }, ...this.#go("starting", polling)]
    }
    if (lineage !== undefined && lineage !== this.#lineage) return this.#newHistory(lineage, offset, polling)
    this.#stand(offset, fromMicros)
    return [{ type: "drop" }, ...this.#go("reading", polling)]
  }

  #again(offset: bigint): readonly PartitionReaderCommand[] {
    this.#refusals = 0
    this.#stopped = undefined
    this.#offset = offset
    this.#fromMicros = this.#place?.offset === offset ? this.#place.fromMicros : undefined
    return this.#go("reading", false)
  }

  #stand(offset: bigint, fromMicros: bigint | undefined): void {
    this.#offset = offset
    this.#fromMicros = fromMicros
    this.#place = { offset, fromMicros }
  }

  #skip(next: bigint, polling: boolean): readonly PartitionReaderCommand[] {
    if (this.starting || next <= this.#offset) return nothing
    this.#refusals = 0
    this.#stopped = undefined
    this.#offset = next
    this.#fromMicros = undefined
    return [{ type: "advance", next }, ...this.#go("reading", polling)]
  }
}
