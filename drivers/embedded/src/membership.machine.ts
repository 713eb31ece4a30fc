/**
 * The life of a group's member. Pure: events in, commands out, the time inside the event.
 *
 * At most one call to the store is under way, so that answers come in the order of the truth. Whatever happens only changes the state;
 * then one pump derives the next call from it.
 */
import type { MillraceError } from "@millrace/contract"
import type { GroupView, ViewAnswer } from "./engine/group-view.ts"
import { type ClaimChange, MembershipClaims } from "./membership-claims.ts"
import { MembershipVigil, type Verdict } from "./membership-vigil.ts"

/**
 * Which phase follows on what; anything else leaves it as it is. `failed` stands for a failure for good: after one that may pass, the
 * call is made again at the next heartbeat.
 */
const phases: Record<Phase, Partial<Record<Turn, Phase>>> = {
  joining: { joined: "member", failed: "ended", leave: "leaving" },
  member: { gone: "joining", failed: "ended", leave: "leaving" },
  leaving: { left: "ended", failed: "ended" },
  ended: {},
}

/**
 * - joining: no member yet, or taken for dead and on the way back.
 * - member: known to the others.
 * - leaving: the owner hears no more; the store has yet to be told.
 * - ended: nothing will happen any more.
 */
type Phase = "joining" | "member" | "leaving" | "ended"
type Turn = "joined" | "gone" | "failed" | "leave" | "left"

export type MembershipEvent =
  /** The answer of `join`. */
  | { readonly type: "joined"; readonly nowMs: number; readonly member: number; readonly view: GroupView }
  /** The answer of `beat`, `observe`, `release` and `expel`. */
  | { readonly type: "viewed"; readonly nowMs: number; readonly view: ViewAnswer }
  /** The answer of `leave`. */
  | { readonly type: "left"; readonly nowMs: number }
  /** The call under way failed. */
  | { readonly type: "failed"; readonly nowMs: number; readonly error: MillraceError }
  /** The armed time has come. */
  | { readonly type: "due"; readonly nowMs: number }
  /** The watch saw a change, ran out, or failed; after a failure it is set again with the next heartbeat. */
  | { readonly type: "watched"; readonly nowMs: number; readonly outcome: "changed" | "over" | "failed" }
  /** The owner is done with these claims, and waits under this ticket. */
  | { readonly type: "release"; readonly nowMs: number; readonly ticket: number; readonly claims: readonly number[] }
  /** The owner goes, and waits under this ticket. */
  | { readonly type: "leave"; readonly nowMs: number; readonly ticket: number }

/** One call to the store. The next event but `due`, `watched`, `release` and `leave` is its answer. */
export type MembershipCall =
  /** With the topics that the member knew before; absent the first time. */
  | { readonly name: "join"; readonly returning?: readonly number[] }
  | { readonly name: "beat" | "observe" | "leave"; readonly member: number }
  | { readonly name: "release"; readonly member: number; readonly claims: readonly number[] }
  | ({ readonly name: "expel"; readonly member: number } & Verdict)

export type MembershipCommand =
  | { readonly type: "call"; readonly call: MembershipCall }
  /** Sets the one timer, in place of the one set before. */
  | { readonly type: "arm"; readonly delayMs: number }
  /** Watches for a view of another version than this. */
  | { readonly type: "watch"; readonly member: number; readonly version: string }
  /** `take` has something to tell. */
  | { readonly type: "offer" }
  /** Those who wait under these tickets need wait no longer. */
  | { readonly type: "settle"; readonly tickets: readonly number[]; readonly error?: MillraceError }
  /** Nothing follows for the owner: no timer, no watch, and after what `take` still tells only the error, if there is one. */
  | { readonly type: "end"; readonly error?: MillraceError }

/** A heartbeat at least this often, whatever the session timeout. */
const longestBeatMs = 1000
/** So many heartbeats may fail before the session timeout is over. */
const beatsPerSession = 5
/** A look is not taken more often than this, however near a deadline is. */
const shortestWaitMs = 1

export class MembershipMachine {
  readonly #beatMs: number
  readonly #claims: MembershipClaims
  #vigil: MembershipVigil
  #commands: MembershipCommand[] = []
  #phase: Phase = "joining"
  /** The present incarnation. */
  #member: number | undefined
  /** The last view of any incarnation. */
  #view: GroupView | undefined
  #verdict: Verdict = nobody
  /** The call under way, and those who wait for its answer. */
  #call: MembershipCall | undefined
  #underWay: readonly number[] = []
  /** Those who wait for a later call. */
  #waiting: readonly number[] = []
  #lastBeatMs = 0
  #dueMs: number | undefined
  #watch: "none" | "set" | "broken" = "none"
  #wantBeat = true
  #wantLook = false
  /** After a failure nothing but a leave, and what the owner asks for anew, is called before the next heartbeat is due. */
  #resting = false
  /** One expulsion between two heartbeats. */
  #judged = false
  #tellFirst = false
  /** The owner has left and hears nothing more, not even what it has not heard yet. */
  #deaf = false

  constructor(options: { readonly sessionTimeoutMs: number; readonly rebalanceTimeoutMs: number }) {
    this.#beatMs = Math.min(longestBeatMs, options.sessionTimeoutMs / beatsPerSession)
    this.#claims = new MembershipClaims(options.rebalanceTimeoutMs)
    this.#vigil = this.#newVigil()
  }

  /** The first commands: makes the member known. */
  start(nowMs: number): readonly MembershipCommand[] {
    return this.#decide(nowMs)
  }

  /** One event. The commands are to be carried out in order, before the next event. */
  handle(event: MembershipEvent): readonly MembershipCommand[] {
    switch (event.type) {
      case "joined":
        this.#joined(event)
        break
      case "viewed":
        this.#viewed(event)
        break
      case "left":
        this.#answered()
        this.#member = undefined
        break
      case "failed":
        this.#failed(event.error)
        break
      case "due":
        this.#dueMs = undefined
        this.#wantBeat = true
        this.#resting = false
        this.#judged = false
        if (this.#watch === "broken") this.#watch = "none"
        break
      case "watched":
        this.#watch = event.outcome === "failed" ? "broken" : "none"
        this.#wantLook ||= event.outcome === "changed"
        break
      case "release":
        this.#released(event)
        break
      case "leave":
        this.#waiting = [...this.#waiting, event.ticket]
        this.#deaf = true
        if (this.#turn("leave")) this.#commands.push({ type: "end" })
        break
    }
    return this.#decide(event.nowMs)
  }

  /** What the owner has not heard yet; `undefined` when there is nothing. The first time also when nothing was assigned. */
  take(nowMs: number): ClaimChange | undefined {
    if (this.#deaf || !(this.#tellFirst || this.#claims.pending)) return undefined
    this.#tellFirst = false
    return this.#claims.take(nowMs)
  }

  #joined({
    member,
    view,
    nowMs,
  }: {
    readonly member: number
    readonly view: GroupView
    readonly nowMs: number
  }): void {
    this.#tellFirst = this.#view === undefined
    this.#answered()
    this.#member = member
    this.#vigil = this.#newVigil()
    this.#lastBeatMs = nowMs
    this.#turn("joined")
    this.#see(view, nowMs)
  }

  #viewed({ view, nowMs }: { readonly view: ViewAnswer; readonly nowMs: number }): void {
    this.#answered()
    if (view === undefined) this.#gone()
    else this.#see(view, nowMs)
  }

  /** Taken for dead, replaced, or the group is gone: joining again will tell. */
  #gone(): void {
    this.#member = undefined
    this.#verdict = nobody
    this.#claims.forfeit()
    this.#wantBeat = true
    if (this.#turn("gone")) this.#settleWaiting()
  }

  #see(view: GroupView, nowMs: number): void {
    this.#view = view
    this.#wantLook = false
    this.#claims.observe(view.claims, nowMs)
    this.#verdict = this.#vigil.look(view, nowMs)
    // What was to be released may be void meanwhile; then nobody is told of it, and nobody need wait.
    if (this.#phase === "member" && this.#claims.releasing().length === 0) this.#settleWaiting()
  }

  /** The first join, and the leave, are tried once; anything else again at the next heartbeat if that can help. */
  #failed(error: MillraceError): void {
    this.#answered(error)
    this.#resting = true
    const again = error.retryable && this.#phase !== "leaving" && this.#view !== undefined
    if (again || !this.#turn("failed")) return
    this.#settleWaiting(error)
    this.#claims.forfeit()
    if (!this.#deaf) this.#commands.push({ type: "end", error })
  }

  #released({ ticket, claims }: { readonly ticket: number; readonly claims: readonly number[] }): void {
    this.#resting = false
    this.#claims.release(claims)
    const toTell = new Set(this.#claims.releasing())
    if (this.#over || !claims.some((claim) => toTell.has(claim))) this.#settle([ticket])
    else this.#waiting = [...this.#waiting, ticket]
  }

  /** The pump: derives what is to be done from the state alone. */
  #decide(nowMs: number): readonly MembershipCommand[] {
    if (this.#call === undefined) this.#callNext(nowMs)
    if (!this.#over) {
      if (this.#tellFirst || this.#claims.pending) this.#commands.push({ type: "offer" })
      this.#setWatch()
      this.#arm(nowMs)
    }
    const commands = this.#commands
    this.#commands = []
    return commands
  }

  #callNext(nowMs: number): void {
    switch (this.#phase) {
      case "joining":
        if (!this.#resting && this.#wantBeat) this.#join(nowMs)
        break
      case "member":
        if (!this.#resting) this.#callAsMember(this.#member as number, nowMs)
        break
      case "leaving":
        if (this.#member !== undefined) this.#begin({ name: "leave", member: this.#member })
        else if (this.#turn("left")) this.#settleWaiting()
        break
      case "ended":
        this.#settleWaiting()
        break
    }
  }

  #join(nowMs: number): void {
    this.#wantBeat = false
    this.#lastBeatMs = nowMs
    this.#begin(this.#view === undefined ? { name: "join" } : { name: "join", returning: this.#view.topicIds })
  }

  /** The heartbeat comes first, so that nothing that fails again and again can hold it up. */
  #callAsMember(member: number, nowMs: number): void {
    const claims = this.#claims.releasing()
    if (this.#wantBeat) {
      this.#wantBeat = false
      this.#lastBeatMs = nowMs
      this.#begin({ name: "beat", member })
    } else if (claims.length > 0) {
      this.#begin({ name: "release", member, claims })
    } else if (!this.#judged && this.#verdict.silent.length + this.#verdict.overdue.length > 0) {
      this.#judged = true
      this.#begin({ name: "expel", member, ...this.#verdict })
    } else if (this.#wantLook) {
      this.#begin({ name: "observe", member })
    }
  }

  #begin(call: MembershipCall): void {
    this.#call = call
    if (call.name === "release" || call.name === "leave") {
      this.#underWay = this.#waiting
      this.#waiting = []
    }
    this.#commands.push({ type: "call", call })
  }

  /** A watch is set only with a view that is up to date: it would answer at once for what is known to have changed. */
  #setWatch(): void {
    const current = this.#phase === "member" && this.#call === undefined && !this.#wantLook
    if (this.#watch !== "none" || !current) return
    this.#watch = "set"
    const { version } = this.#view as GroupView
    this.#commands.push({ type: "watch", member: this.#member as number, version })
  }

  /** A heartbeat that is wanted already goes out with the next call, unless the member rests. */
  #arm(nowMs: number): void {
    if (this.#wantBeat && !this.#resting) return
    const beatMs = this.#lastBeatMs + this.#beatMs
    const dueMs = this.#resting || this.#judged ? beatMs : Math.min(beatMs, this.#vigil.dueMs())
    if (this.#dueMs === dueMs) return
    this.#dueMs = dueMs
    this.#commands.push({ type: "arm", delayMs: Math.max(shortestWaitMs, dueMs - nowMs) })
  }

  get #over(): boolean {
    return this.#phase === "leaving" || this.#phase === "ended"
  }

  #answered(error?: MillraceError): void {
    this.#call = undefined
    this.#settle(this.#underWay, error)
    this.#underWay = []
  }

  #turn(turn: Turn): boolean {
    const next = phases[this.#phase][turn]
    if (next === undefined) return false
    this.#phase = next
    return true
  }

  #settleWaiting(error?: MillraceError): void {
    this.#settle(this.#waiting, error)
    this.#waiting = []
  }

  #settle(tickets: readonly number[], error?: MillraceError): void {
    if (tickets.length > 0) this.#commands.push({ type: "settle", tickets, ...(error === undefined ? {} : { error }) })
  }

  #newVigil(): MembershipVigil {
    return new MembershipVigil({ longestGapMs: 2 * this.#beatMs, graceMs: this.#beatMs })
  }
}

const nobody: Verdict = { silent: [], overdue: [] }
