/**
 * The life of a group's member. Pure: events in, commands out, the time inside the event.
 *
 * Heartbeats go out by the clock alone, whatever else is under way. Of calls, at most one is under way, so that answers come in the
 * order of the truth: what happens meanwhile only changes the state, and one pump derives the next call from it.
 */
import type { MillraceError } from "@millrace/contract"
import type { GroupView } from "./groups-view.ts"
import { type ClaimNews, MembershipClaims } from "./membership-claims.ts"
import { MembershipVigil, type Sign, type Verdict } from "./membership-vigil.ts"

/** Which phase follows on what; anything else leaves it as it is. `failed` stands for failures that no retry mends. */
const transitions: Record<Phase, Partial<Record<Turn, Phase>>> = {
  joining: { joined: "member", failed: "ended", leave: "leaving" },
  member: { removed: "joining", failed: "ended", leave: "leaving" },
  leaving: { left: "ended", failed: "ended" },
  ended: {},
}

/**
 * - joining: not in the record yet, or taken out of it and on the way back.
 * - member: in the record.
 * - leaving: the owner hears no more; the record has yet to be told.
 * - ended: nothing will happen any more.
 */
type Phase = "joining" | "member" | "leaving" | "ended"
type Turn = "joined" | "removed" | "failed" | "leave" | "left"

export type MembershipEvent =
  /** The answer of `join`. */
  | { readonly type: "joined"; readonly nowMs: number; readonly member: number; readonly view: GroupView }
  /** The answer of `report`: without a view the record does not list the member. */
  | {
      readonly type: "viewed"
      readonly nowMs: number
      readonly view: GroupView | undefined
      readonly signs: readonly Sign[]
    }
  /** The answer of `leave`. */
  | { readonly type: "left"; readonly nowMs: number }
  /** The call under way failed. */
  | { readonly type: "failed"; readonly nowMs: number; readonly error: MillraceError }
  /** The armed time has come. */
  | { readonly type: "due"; readonly nowMs: number }
  /** Somebody says that the record changed. */
  | { readonly type: "stirred"; readonly nowMs: number }
  /** Another's heartbeat was heard. */
  | ({ readonly type: "heard"; readonly nowMs: number } & Sign)
  /** The owner is done with these claims, and waits under this ticket. */
  | { readonly type: "release"; readonly nowMs: number; readonly ticket: number; readonly claims: readonly number[] }
  /** The owner goes, and waits under this ticket. */
  | { readonly type: "leave"; readonly nowMs: number; readonly ticket: number }

/** A call to the bucket. The next of `joined`, `viewed`, `left` and `failed` is its answer. */
export type MembershipCall =
  | { readonly name: "join"; readonly returning: boolean }
  | ({
      readonly name: "report"
      readonly member: number
      readonly released: readonly number[]
      /** Members whose heartbeat is to be looked up. */
      readonly doubtful: readonly number[]
      /** Whether the topics are to be compared with the catalog. */
      readonly topics: boolean
    } & Verdict)
  | { readonly name: "leave"; readonly member: number }

export type MembershipCommand =
  | { readonly type: "call"; readonly call: MembershipCall }
  /** Sends the next heartbeat. Nobody waits for an answer. */
  | { readonly type: "beat"; readonly member: number }
  /** Sets the one timer, in place of the one before. */
  | { readonly type: "arm"; readonly delayMs: number }
  /** `take` has something to tell. */
  | { readonly type: "offer" }
  /** Those who wait under these tickets need wait no longer. */
  | { readonly type: "settle"; readonly tickets: readonly number[]; readonly error?: MillraceError }
  /** No timer and no call follows but the leave; after what `take` still tells, the owner hears only the error, if there is one. */
  | { readonly type: "end"; readonly error?: MillraceError }

/** A heartbeat at least this often, whatever the session time-out. */
const longestBeatMs = 1000
/** So many heartbeats may get lost before the session time-out is over. */
const beatsPerSession = 5
/** The timer is never set shorter than this, however near a deadline is. */
const shortestWaitMs = 1

export class MembershipMachine {
  readonly #beatMs: number
  readonly #claims: MembershipClaims
  #vigil: MembershipVigil
  #commands: MembershipCommand[] = []
  #phase: Phase = "joining"
  #member: number | undefined
  #joinedBefore = false
  #call: MembershipCall | undefined
  /** Those who wait for the call under way, and for a later one. */
  #underWay: readonly number[] = []
  #waiting: readonly number[] = []
  #lastBeatMs = 0
  #dueMs: number | undefined
  #wantJoin = true
  #wantLook = false
  #wantTopics = false
  /** After a failure nothing but a leave, and what the owner asks for anew, is called before the next heartbeat. */
  #resting = false
  /** Whoever is condemned is reported once between two heartbeats. */
  #judged = false
  #tellFirst = false
  /** The owner has left and hears nothing more. */
  #deaf = false

  constructor(options: { readonly sessionTimeoutMs: number; readonly rebalanceTimeoutMs: number }) {
    this.#beatMs = Math.min(longestBeatMs, options.sessionTimeoutMs / beatsPerSession)
    this.#claims = new MembershipClaims(options.rebalanceTimeoutMs)
    this.#vigil = this.#newVigil()
  }

  /** The first commands. */
  start(nowMs: number): readonly MembershipCommand[] {
    this.#lastBeatMs = nowMs
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
        this.#failed(event)
        break
      case "due":
        this.#due(event.nowMs)
        break
      case "stirred":
        this.#wantLook = true
        break
      case "heard":
        this.#vigil.hear(event)
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
  take(nowMs: number): ClaimNews | undefined {
    if (this.#deaf || !(this.#tellFirst || this.#claims.news)) return undefined
    this.#tellFirst = false
    return this.#claims.tell(nowMs)
  }

  #joined({ member, view, nowMs }: MembershipEvent & { readonly type: "joined" }): void {
    this.#answered()
    this.#tellFirst ||= !this.#joinedBefore
    this.#joinedBefore = true
    this.#member = member
    this.#vigil = this.#newVigil()
    if (!this.#turn("joined")) return
    this.#beat(nowMs)
    this.#see(view, nowMs)
  }

  #viewed({ view, signs, nowMs }: MembershipEvent & { readonly type: "viewed" }): void {
    this.#answered()
    for (const sign of signs) this.#vigil.hear(sign)
    if (view === undefined) this.#removed()
    else this.#see(view, nowMs)
  }

  /** Taken for dead, or the group is gone: joining again will tell. */
  #removed(): void {
    this.#member = undefined
    this.#claims.loseAll()
    this.#wantJoin = true
    if (this.#turn("removed")) this.#settleWaiting()
  }

  #see(view: GroupView, nowMs: number): void {
    this.#claims.see(view.claims, nowMs)
    this.#vigil.see(view, nowMs)
    // What was to be released may be void by now: nobody is told of it, and nobody need wait.
    if (this.#phase === "member" && this.#claims.released().length === 0) this.#settleWaiting()
  }

  #failed({ error, nowMs }: MembershipEvent & { readonly type: "failed" }): void {
    const call = this.#call?.name
    this.#answered(error)
    this.#resting = true
    this.#vigil.deafened(nowMs)
    if (this.#phase === "leaving" && call !== "leave") return
    if (this.#phase !== "leaving" && error.retryable && this.#joinedBefore) return
    if (!this.#turn("failed")) return
    this.#settleWaiting(error)
    this.#claims.loseAll()
    if (!this.#deaf) this.#commands.push({ type: "end", error })
  }

  #due(nowMs: number): void {
    this.#dueMs = undefined
    this.#vigil.pass(nowMs)
    if (nowMs < this.#lastBeatMs + this.#beatMs) return
    this.#resting = false
    this.#judged = false
    this.#wantLook = true
    this.#wantTopics = true
    this.#wantJoin = true
    if (this.#phase === "member") this.#beat(nowMs)
    else this.#lastBeatMs = nowMs
  }

  #beat(nowMs: number): void {
    this.#lastBeatMs = nowMs
    this.#commands.push({ type: "beat", member: this.#member as number })
  }

  #released({ ticket, claims }: MembershipEvent & { readonly type: "release" }): void {
    this.#resting = false
    this.#claims.release(claims)
    const open = new Set(this.#claims.released())
    if (this.#over || !claims.some((claim) => open.has(claim))) this.#settle([ticket])
    else this.#waiting = [...this.#waiting, ticket]
  }

  /** The pump: derives what is to be done from the state alone. */
  #decide(nowMs: number): readonly MembershipCommand[] {
    if (this.#call === undefined) this.#callNext()
    if (!this.#over) {
      if (this.#tellFirst || this.#claims.news) this.#commands.push({ type: "offer" })
      this.#arm(nowMs)
    }
    const commands = this.#commands
    this.#commands = []
    return commands
  }

  #callNext(): void {
    switch (this.#phase) {
      case "joining":
        if (this.#resting || !this.#wantJoin) return
        this.#wantJoin = false
        this.#begin({ name: "join", returning: this.#joinedBefore })
        return
      case "member":
        if (!this.#resting) this.#report(this.#member as number)
        return
      case "leaving":
        if (this.#member !== undefined) this.#begin({ name: "leave", member: this.#member })
        else if (this.#turn("left")) this.#settleWaiting()
        return
      case "ended":
        this.#settleWaiting()
        return
    }
  }

  #report(member: number): void {
    const released = this.#claims.released()
    const doubtful = this.#vigil.doubtful()
    const { silent, overdue } = this.#judged ? nobody : this.#vigil.verdict()
    const judging = silent.length + overdue.length > 0
    if (!this.#wantLook && released.length === 0 && !judging) return
    const topics = this.#wantTopics
    this.#wantLook = false
    this.#wantTopics = false
    this.#judged ||= judging
    this.#begin({ name: "report", member, released, silent, overdue, doubtful, topics })
  }

  #begin(call: MembershipCall): void {
    this.#call = call
    if (call.name !== "join") {
      this.#underWay = this.#waiting
      this.#waiting = []
    }
    this.#commands.push({ type: "call", call })
  }

  #arm(nowMs: number): void {
    const beatMs = this.#lastBeatMs + this.#beatMs
    const quiet = this.#resting || this.#judged || this.#phase !== "member"
    const dueMs = quiet ? beatMs : Math.min(beatMs, this.#vigil.dueMs())
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
    const next = transitions[this.#phase][turn]
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
    return new MembershipVigil({
      longestGapMs: 2 * this.#beatMs,
      doubtMs: 2 * this.#beatMs,
      graceMs: this.#beatMs,
    })
  }
}

const nobody: Verdict = { silent: [], overdue: [] }
