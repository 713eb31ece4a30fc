/**
 * The part of a member's life that both group protocols share: its phase, its one call at a time, who waits for what, and what the
 * owner hears. Pure.
 *
 * Whatever happens only changes the state; then one pump, which the protocol supplies, derives the next call from it.
 */
import { FencedError, type MillraceError } from "@millrace/contract"
import { backoffMs } from "@millrace/runtime"
import { type ClaimChange, MemberClaims } from "./member-claims.ts"
import type { MemberCommand } from "./member-machine.ts"

/** Which phase follows on what; anything else leaves it as it is. */
const phases: Record<Phase, Partial<Record<Turn, Phase>>> = {
  joining: { joined: "member", failed: "ended", leave: "leaving" },
  member: { gone: "joining", failed: "ended", leave: "leaving" },
  leaving: { left: "ended", failed: "ended" },
  ended: {},
}

/**
 * - joining: no member of the present generation: not yet, or on the way back.
 * - member: known to the others.
 * - leaving: the owner hears no more; the coordinator has yet to be told.
 * - ended: nothing will happen any more.
 */
export type Phase = "joining" | "member" | "leaving" | "ended"
type Turn = "joined" | "gone" | "failed" | "leave" | "left"

/** The pause after a failed call, in ms: the first and the longest. It is never longer than a heartbeat's. */
const firstPauseMs = 100
const longestPauseMs = 2000
/** A timer is not set shorter than this. */
const shortestWaitMs = 1

/** How a member is called in errors. */
export interface MemberName {
  readonly group: string
  readonly memberId: string | undefined
}

export class MemberPhase<Call extends { readonly name: string }> {
  readonly claims: MemberClaims
  readonly #name: MemberName
  phase: Phase = "joining"
  /** Whether it was ever a member: then a failure that may pass does not end it. */
  known = false
  /** The call under way. */
  call: Call | undefined
  /** The next heartbeat, or the end of a pause. */
  nextMs = 0
  #failures = 0
  #commands: MemberCommand<Call>[] = []
  #underWay: readonly number[] = []
  #waiting: readonly number[] = []
  #leaveTickets: readonly number[] = []
  #armedMs: number | undefined
  #tellFirst = false
  #deaf = false

  constructor(name: MemberName, rebalanceTimeoutMs: number) {
    this.#name = name
    this.claims = new MemberClaims(rebalanceTimeoutMs)
  }

  /** Whether the last call failed: nothing is called before `nextMs`. */
  get pausing(): boolean {
    return this.#failures > 0
  }

  /** Whether the owner hears no more. */
  get over(): boolean {
    return this.phase === "leaving" || this.phase === "ended"
  }

  take(nowMs: number): ClaimChange | undefined {
    if (this.#deaf || !(this.#tellFirst || this.claims.pending)) return undefined
    this.#tellFirst = false
    return this.claims.take(nowMs)
  }

  begin(call: Call): void {
    this.call = call
    this.#commands.push({ type: "call", call })
  }

  /** Those who wait for a release wait for the answer to the call under way. */
  bringWaiting(): void {
    this.#underWay = [...this.#underWay, ...this.#waiting]
    this.#waiting = []
  }

  /** The call under way came to something. */
  answered(): void {
    this.call = undefined
    this.#failures = 0
    const done = this.#underWay
    this.#underWay = []
    this.#settle(done)
  }

  /** The call under way failed; whoever waits for it waits for the next one. `true` when it is to be made again after a pause. */
  failed(error: MillraceError, nowMs: number): boolean {
    const goodbye = this.call?.name === "leave"
    this.call = undefined
    this.#waiting = [...this.#underWay, ...this.#waiting]
    this.#underWay = []
    if (this.phase === "leaving" && !goodbye) return true
    if (error.retryable && this.known && !this.over) {
      this.nextMs = nowMs + backoffMs(this.#failures++, firstPauseMs, longestPauseMs)
      return true
    }
    this.end(error)
    return false
  }

  joined(): void {
    if (!this.known) this.#tellFirst = true
    this.known = true
    this.#commands.push({ type: "joined" })
    this.turn("joined")
  }

  /** All claims are void; the member joins anew, at once or after a pause when that has just happened. */
  gone(nowMs: number, options: { readonly pause: boolean }): void {
    this.claims.forfeit()
    this.#settleWaiting()
    this.nextMs = options.pause ? nowMs + backoffMs(this.#failures++, firstPauseMs, longestPauseMs) : nowMs
    this.turn("gone")
  }

  /** Another has taken the member's name. */
  replaced(cause: MillraceError): void {
    if (this.phase === "leaving") {
      this.left()
      return
    }
    const { group, memberId } = this.#name
    const who = memberId === undefined ? "the member" : `member ${JSON.stringify(memberId)}`
    const message = `${who} of group ${JSON.stringify(group)} was replaced: another has joined under its name`
    this.end(new FencedError(message, { context: { group, memberId }, cause }))
  }

  /** Ends the member. What waits for a leave fails with it; what waits for a release is moot. */
  end(error: MillraceError): void {
    const leaving = this.phase === "leaving"
    if (!this.turn("failed")) return
    this.claims.forfeit()
    this.#settleWaiting()
    this.#settle(this.#leaveTickets, error)
    this.#leaveTickets = []
    if (!leaving) this.#commands.push({ type: "end", error })
  }

  release(ticket: number, claims: readonly number[]): void {
    this.claims.release(claims)
    const toTell = new Set(this.claims.releasing())
    if (this.over || !claims.some((claim) => toTell.has(claim))) this.#settle([ticket])
    else this.#waiting = [...this.#waiting, ticket]
  }

  leave(ticket: number): void {
    this.#leaveTickets = [...this.#leaveTickets, ticket]
    this.#deaf = true
    this.claims.forfeit()
    this.#settleWaiting()
    if (this.turn("leave")) this.#commands.push({ type: "end" })
    if (this.phase === "ended") this.left()
  }

  /** The coordinator knows, or never did. */
  left(): void {
    this.turn("left")
    this.#settle(this.#leaveTickets)
    this.#leaveTickets = []
  }

  /** The commands since the last time. Sets the timer for the earlier of the next heartbeat and `dueMs`. */
  commands(nowMs: number, dueMs: number = Number.POSITIVE_INFINITY): readonly MemberCommand<Call>[] {
    if (!this.over) {
      if (this.#tellFirst || this.claims.pending) this.#commands.push({ type: "offer" })
      this.#arm(nowMs, Math.min(dueMs, this.call === undefined ? this.nextMs : Number.POSITIVE_INFINITY))
    }
    const commands = this.#commands
    this.#commands = []
    return commands
  }

  /** The armed time has come. */
  due(): void {
    this.#armedMs = undefined
  }

  turn(turn: Turn): boolean {
    const next = phases[this.phase][turn]
    if (next === undefined) return false
    this.phase = next
    return true
  }

  #arm(nowMs: number, dueMs: number): void {
    if (dueMs === Number.POSITIVE_INFINITY || this.#armedMs === dueMs) return
    this.#armedMs = dueMs
    this.#commands.push({ type: "arm", delayMs: Math.max(shortestWaitMs, dueMs - nowMs) })
  }

  #settleWaiting(): void {
    const waiting = [...this.#underWay, ...this.#waiting]
    this.#underWay = []
    this.#waiting = []
    this.#settle(waiting)
  }

  #settle(tickets: readonly number[], error?: MillraceError): void {
    if (tickets.length > 0) this.#commands.push({ type: "settle", tickets, ...(error === undefined ? {} : { error }) })
  }
}
