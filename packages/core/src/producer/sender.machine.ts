/**
 * What happens to the batches of one partition, in order: dispatch, limit in flight, retry, identity and sequence. Pure: events go in
 * with their time, commands come out, and the owner (`sender.ts`) does what they say.
 *
 *     phase        event                                next phase
 *     ready        dispatch, appended, late             ready, or identifying when numbers are needed
 *     ready        failed, timed out                    draining
 *     draining     appended, failed, timed out          draining until nothing is in flight, then ready, resting or ended
 *     resting      the rest is over                     ready
 *     identifying  identified, unidentified             ready
 *     any          retire (once nothing is in flight), abort, a topic that is gone      ended
 *
 * The promises that the rest of the producer stands on:
 * - Batches reach the backend in the order of the queue, also after failures: a failure stops the dispatch until every batch in
 *   flight has settled, and then all unsettled ones go out again in order.
 * - A batch that may have been stored is resent only under the number that lets the backend recognise it. When that is impossible it
 *   fails with outcome `unknown`.
 * - Numbers of a batch that was certainly refused are used again by those behind it, unless one of these may be stored: then, as after
 *   every unknown outcome, the rest goes out under the next epoch, from 0.
 */
import { CancelledError, type Identity, type MillraceError, SequenceError, TimeoutError } from "@millrace/contract"
import { backoffMs } from "@millrace/runtime"
import { longestBackoffMs } from "../client/attempts.ts"
import type { BatchNumber } from "./batch-journal.ts"
import type { IdentityView, SenderCommand, SenderEvent, SenderSettings } from "./sender-command.ts"
import { type Entry, newEntry, type SenderBatch, truthful } from "./sender-entry.ts"
import { SequenceGap } from "./sequence-gap.ts"

type Phase = "ready" | "draining" | "resting" | "identifying" | "ended"

const transitions: Readonly<Record<Phase, readonly Phase[]>> = {
  ready: ["draining", "identifying", "ended"],
  draining: ["ready", "resting", "ended"],
  resting: ["ready", "ended"],
  identifying: ["ready", "ended"],
  ended: [],
}

/** Sequences have 31 bits and wrap to 0. */
const sequenceMask = 0x7fff_ffff

/** How often one batch is numbered anew because the backend does not know the producer any more; then it fails. */
const maxRenumberings = 3

/** Out again at once or after a rest, under a new number, in halves, or not at all. */
type Verdict = "again" | "rest" | "renumber" | "split" | "final"

export class SenderMachine<B extends SenderBatch> {
  readonly #settings: SenderSettings
  #phase: Phase = "ready"
  /** Unsettled batches in order. */
  #queue: Entry<B>[] = []
  #inFlight = 0
  #identity: Identity | undefined
  #nextSequence = 0
  /** Counts batches that got a number. */
  #nextOrdinal = 0
  /** Batches without a number need the next epoch, once those with one have settled. */
  #epochSpent = false
  #fenced = false
  #retiring = false
  #restUntilMs = 0
  #unnumbered: B[] = []

  constructor(settings: SenderSettings) {
    this.#settings = settings
  }

  get phase(): Phase {
    return this.#phase
  }

  get inFlight(): number {
    return this.#inFlight
  }

  /** Batches that have not settled. */
  get unsettled(): number {
    return this.#queue.length
  }

  /** Batches with a number that have not settled. */
  get numbered(): number {
    let count = 0
    for (const entry of this.#queue) if (entry.sequence !== -1) count++
    return count
  }

  /** When a `timer` event is due; `undefined` while there is nothing to wait for. */
  get wakeAtMs(): number | undefined {
    if (this.#phase === "resting") return this.#queue.length === 0 ? undefined : this.#restUntilMs
    if (this.#inFlight === 0) return undefined
    let earliest = Number.POSITIVE_INFINITY
    let left = this.#inFlight
    for (let i = 0; left > 0; i++) {
      const entry = this.#queue[i] as Entry<B>
      if (entry.state !== "inFlight") continue
      left--
      if (entry.deadlineMs < earliest) earliest = entry.deadlineMs
    }
    return earliest === Number.POSITIVE_INFINITY ? undefined : earliest
  }

  enqueue(batch: B): void {
    this.#queue.push(newEntry(batch))
  }

  /** A batch of an earlier process goes out again, under the number that it had, ahead of all that follows. It may be stored. */
  restore(batch: B, was: { readonly identity: BatchNumber | undefined; readonly firstSentMs: number }): void {
    const entry = newEntry(batch)
    entry.attempt = 1
    entry.unknown = true
    entry.firstSentMs = was.firstSentMs
    if (was.identity !== undefined) {
      entry.identity = was.identity
      entry.sequence = was.identity.sequence
      entry.ordinal = this.#nextOrdinal++
      this.#identity = was.identity
      // Where the other partitions of that identity stand is not known: what follows takes a new one.
      this.#epochSpent = true
    }
    this.#queue.push(entry)
  }

  /** The batches whose numbers have become void since this was asked last. They go out under others, or in another history. */
  takeUnnumbered(): readonly B[] {
    const batches = this.#unnumbered
    if (batches.length > 0) this.#unnumbered = []
    return batches
  }

  /** Something has to be done before an attempt can go out: its time does not run until then. */
  hold(entry: Entry<B>): void {
    entry.deadlineMs = Number.POSITIVE_INFINITY
  }

  /** A held attempt goes out only now. */
  begin(entry: Entry<B>, nowMs: number): void {
    if (entry.attempt === 1) entry.firstSentMs = nowMs
    entry.deadlineMs = nowMs + this.#settings.attemptTimeoutMs
  }

  /** The answer to `split`: two batches take the place of one. */
  replace(entry: Entry<B>, halves: readonly [B, B]): void {
    const at = this.#queue.indexOf(entry)
    entry.state = "settled"
    this.#queue.splice(at, 1, newEntry(halves[0]), newEntry(halves[1]))
  }

  step(event: SenderEvent<B>): SenderCommand<B>[] {
    const commands: SenderCommand<B>[] = []
    if (this.#phase === "ended") return commands
    switch (event.kind) {
      case "appended":
        this.#appended(event, commands)
        break
      case "failed":
        if (event.entry.state === "inFlight" && event.entry.attempt === event.attempt)
          this.#fail(event.entry, event.error)
        break
      case "timer":
        this.#expire(event.nowMs)
        if (this.#phase === "resting" && event.nowMs >= this.#restUntilMs) this.#enter("ready")
        break
      case "identified":
        this.#identified(event.identity)
        break
      case "unidentified":
        this.#enter("ready")
        this.#failAll(event.error, commands)
        break
      case "retire":
        this.#retiring = true
        break
      case "abort":
        this.#abort(event.error, commands)
        return commands
    }
    if (this.#phase === "draining" && this.#inFlight === 0) this.#recover(event.nowMs, commands)
    if (this.#retiring && this.#inFlight === 0 && !this.#isEnded()) this.#handBack(undefined, commands)
    return commands
  }

  /**
   * The batches that may go out now, or the identity that they need. To be asked after every change, when the commands before are done.
   * It ends behind a dropped batch, whose end may drop more: ask again.
   * @param identities Where batches get their numbers, unless they go without.
   */
  dispatch(nowMs: number, identities: IdentityView | undefined): SenderCommand<B>[] {
    const commands: SenderCommand<B>[] = []
    if (this.#phase !== "ready" || this.#retiring) return commands
    for (let i = 0; i < this.#queue.length; i++) {
      const entry = this.#queue[i] as Entry<B>
      if (entry.state === "inFlight") continue
      if (this.#inFlight >= this.#settings.maxInFlight) break
      const gate = entry.batch.gate
      if (gate === "dropped") {
        this.#drop(i, commands)
        break
      }
      if (gate === "held" || !this.#isReleased(entry.batch)) break
      if (identities !== undefined && entry.sequence === -1 && !this.#number(entry, i === 0, { identities, commands }))
        break
      this.#send(entry, nowMs, commands)
    }
    return commands
  }

  #isReleased(batch: B): boolean {
    return batch.full || (this.#settings.release === "due" ? batch.due : this.#inFlight === 0)
  }

  #send(entry: Entry<B>, nowMs: number, commands: SenderCommand<B>[]): void {
    if (entry.attempt === 0) entry.firstSentMs = nowMs
    entry.attempt++
    entry.state = "inFlight"
    entry.error = undefined
    entry.deadlineMs = nowMs + this.#settings.attemptTimeoutMs
    this.#inFlight++
    const { producerId, epoch } = entry.identity ?? this.#identity ?? { producerId: 0n, epoch: 0 }
    const identity = this.#settings.sequenced ? { producerId, epoch, sequence: entry.sequence } : undefined
    commands.push({ kind: "append", entry, attempt: entry.attempt, identity })
  }

  /**
   * Gives an entry its sequence. False when an identity, or the end of the old epoch, has to be waited for, and when it would be too far
   * from the oldest unsettled one: the backend recognises a resend of that only among as many batches as may be in flight, whether
   * those behind it have settled or not.
   */
  #number(
    entry: Entry<B>,
    isFirst: boolean,
    at: { readonly identities: IdentityView; readonly commands: SenderCommand<B>[] },
  ): boolean {
    const { current, isRenewing } = at.identities
    if (isRenewing) return false
    if (isFirst && current !== undefined && current !== this.#identity) this.#adopt(current)
    if (this.#identity === undefined || this.#epochSpent) {
      if (!isFirst) return false
      const renew = this.#identity === undefined ? undefined : { identity: this.#identity, fenced: this.#fenced }
      at.commands.push({ kind: "identify", renew })
      this.#enter("identifying")
      return false
    }
    const oldest = isFirst ? this.#nextOrdinal : (this.#queue[0] as Entry<B>).ordinal
    if (this.#nextOrdinal - oldest >= this.#settings.maxInFlight) return false
    entry.ordinal = this.#nextOrdinal++
    entry.identity = undefined
    entry.sequence = this.#nextSequence
    this.#nextSequence = (this.#nextSequence + entry.batch.count) & sequenceMask
    return true
  }

  #adopt(identity: Identity): void {
    this.#identity = identity
    this.#nextSequence = 0
    this.#epochSpent = false
    this.#fenced = false
  }

  #identified(identity: Identity): void {
    if (this.#phase !== "identifying") return
    this.#adopt(identity)
    this.#enter("ready")
  }

  /** Also a late success of an attempt that was given up counts: the batch is stored under the number it still has. */
  #appended(event: Extract<SenderEvent<B>, { kind: "appended" }>, commands: SenderCommand<B>[]): void {
    const { entry, result } = event
    const at = entry.state === "settled" ? -1 : this.#queue.indexOf(entry)
    if (at === -1) return
    if (entry.state === "inFlight") this.#inFlight--
    entry.state = "settled"
    this.#queue.splice(at, 1)
    for (let i = 0; i < at; i++) (this.#queue[i] as Entry<B>).unknown = true
    commands.push({ kind: "confirm", batch: entry.batch, result, resent: entry.attempt > 1 })
    if (this.#phase === "resting" && this.#queue.length === 0) this.#enter("ready")
  }

  #fail(entry: Entry<B>, error: MillraceError): void {
    entry.state = "failed"
    entry.error = error
    if (error.outcome === "unknown") entry.unknown = true
    this.#inFlight--
    if (this.#phase === "ready") this.#enter("draining")
  }

  #expire(nowMs: number): void {
    for (const entry of this.#queue) {
      if (entry.state !== "inFlight" || entry.deadlineMs > nowMs) continue
      const waited = this.#settings.attemptTimeoutMs
      this.#fail(entry, new TimeoutError(`no confirmation within ${waited} ms (attempt ${entry.attempt})`))
    }
  }

  /** Nothing is in flight: decides on every batch that failed, in order. */
  #recover(nowMs: number, commands: SenderCommand<B>[]): void {
    const gone = this.#queue.find((entry) => entry.error?.kind === "not-found")
    if (gone !== undefined) {
      this.#handBack(gone.error, commands)
      return
    }
    const gap = new SequenceGap<B>()
    let restMs = 0
    let first = true
    for (const entry of [...this.#queue]) {
      const error = entry.error
      if (error === undefined && entry.sequence === -1) break
      const verdict = error === undefined ? "again" : this.#judge(entry, error, { first, nowMs })
      first = false
      entry.error = undefined
      if (verdict === "final" || (gap.uncertain && entry.unknown && !this.#doubt(entry))) {
        gap.open(entry)
        this.#settle(entry, error ?? beyondRecognition(), commands)
        continue
      }
      if (verdict === "split") {
        entry.unknown = false
        gap.open(entry)
      }
      if (verdict === "renumber") {
        gap.open(entry)
        this.#epochSpent = true
        this.#fenced ||= error?.kind === "fenced"
      }
      if (verdict === "rest") restMs = Math.max(restMs, this.#restBefore(entry.resends))
      entry.state = "queued"
      gap.keep(entry)
      // What is handed back at once is taken apart where it goes next.
      if (verdict === "split" && !this.#retiring) commands.push({ kind: "split", entry })
    }
    this.#closeGap(gap)
    this.#restUntilMs = nowMs + restMs
    this.#enter(restMs > 0 ? "resting" : "ready")
  }

  #judge(entry: Entry<B>, error: MillraceError, at: { readonly first: boolean; readonly nowMs: number }): Verdict {
    if (entry.batch.gate === "dropped") return "final"
    if (error.kind === "record-too-large") return entry.batch.count > 1 ? "split" : "final"
    if (this.#settings.sequenced && (error.kind === "sequence" || error.kind === "fenced")) {
      if (error.kind === "sequence" && !at.first) return "again"
      if (entry.unknown && !this.#doubt(entry)) return "final"
      return ++entry.renumberings <= maxRenumberings ? "renumber" : "final"
    }
    const { resends, retries } = this.#settings
    if ((!error.retryable && resends === "direct") || entry.resends >= retries) return "final"
    if (entry.unknown && !this.#recognisable(entry, at.nowMs) && !this.#doubt(entry)) return "final"
    entry.resends++
    return "rest"
  }

  /** Whether a batch that may be stored may go out once more. */
  #recognisable(entry: Entry<B>, nowMs: number): boolean {
    const { onUnknown, windowMs } = this.#settings
    if (onUnknown === "fail") return false
    return windowMs === undefined || nowMs - entry.firstSentMs + this.#restBefore(entry.resends + 1) <= windowMs
  }

  /** Whether a batch that may be stored goes out again although its resend could not be recognised. */
  #doubt(entry: Entry<B>): boolean {
    if (this.#settings.onExpired !== "resend") return false
    entry.doubtful = true
    entry.wasDoubtful = true
    return true
  }

  #restBefore(resend: number): number {
    const { resends, retryBackoffMs } = this.#settings
    if (resends === "background") return resend === 1 ? 0 : retryBackoffMs
    return backoffMs(resend - 1, retryBackoffMs, longestBackoffMs)
  }

  /** Decides how the batches behind a removed one are numbered. */
  #closeGap(gap: SequenceGap<B>): void {
    if (!gap.isOpen || !this.#settings.sequenced) return
    if (gap.uncertain || gap.behind.some((entry) => entry.unknown)) this.#epochSpent = true
    for (const entry of gap.behind) {
      if (entry.sequence !== -1) this.#unnumbered.push(entry.batch)
      entry.sequence = -1
      entry.unknown = false
    }
    this.#nextSequence = gap.sequence
  }

  /** A batch that must not go out any more. One that had a number leaves a gap like one that failed. */
  #drop(index: number, commands: SenderCommand<B>[]): void {
    const entry = this.#queue[index] as Entry<B>
    if (entry.sequence !== -1) {
      const gap = new SequenceGap<B>()
      gap.open(entry)
      for (const behind of this.#queue.slice(index + 1)) if (behind.sequence !== -1) gap.keep(behind)
      this.#closeGap(gap)
    }
    this.#settle(entry, entry.error ?? new CancelledError("an earlier request of the same call failed"), commands)
  }

  #settle(entry: Entry<B>, error: MillraceError, commands: SenderCommand<B>[]): void {
    entry.state = "settled"
    this.#queue.splice(this.#queue.indexOf(entry), 1)
    commands.push({ kind: "fail", batch: entry.batch, error: truthful(entry, error) })
  }

  #failAll(error: MillraceError, commands: SenderCommand<B>[]): void {
    for (const entry of [...this.#queue]) this.#settle(entry, error, commands)
  }

  #abort(error: MillraceError, commands: SenderCommand<B>[]): void {
    for (const entry of this.#queue) if (entry.state === "inFlight") entry.unknown = true
    this.#failAll(error, commands)
    this.#inFlight = 0
    this.#enter("ended")
  }

  #handBack(error: MillraceError | undefined, commands: SenderCommand<B>[]): void {
    const batches = this.#queue.map((entry) => entry.batch)
    const unknown = this.#queue.filter((entry) => entry.unknown).map((entry) => entry.batch)
    for (const entry of this.#queue) {
      entry.state = "settled"
    }
    this.#queue = []
    this.#enter("ended")
    commands.push({ kind: "handBack", batches, unknown, error })
  }

  #enter(phase: Phase): void {
    if (!transitions[this.#phase].includes(phase)) throw new Error(`sender: ${this.#phase} does not lead to ${phase}`)
    this.#phase = phase
  }

  #isEnded(): boolean {
    return this.#phase === "ended"
  }
}

function beyondRecognition(): MillraceError {
  return new SequenceError("a batch ahead may be stored, so that a resend of this one could not be recognised")
}
