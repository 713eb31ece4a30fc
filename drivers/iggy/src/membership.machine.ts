/**
 * A group's member, as a machine: events in, commands out, time inside the event.
 *
 * | phase   | event                           | next    |
 * | ------- | ------------------------------- | ------- |
 * | joining | viewed                          | member  |
 * |         | failed, or a topic is gone      | ended   |
 * | member  | session lost                    | away    |
 * |         | viewed, all topics are gone     | ended   |
 * |         | failed, and no retry will help  | ended   |
 * | away    | viewed (after the next session) | member  |
 * |         | viewed, all topics are gone     | ended   |
 * |         | failed, and no retry will help  | ended   |
 * | any     | leave                           | leaving |
 * | leaving | left, failed                    | ended   |
 *
 * The server tells nobody of a rebalance: members ask. One call is under way at a time.
 */
import type { MillraceError } from "@millrace/contract"
import { type ClaimChange, MembershipClaims, type OwnClaim } from "./membership-claims.ts"

type Phase = "joining" | "member" | "away" | "leaving" | "ended"

/** What the server said of one topic. */
export type TopicSync =
  | {
      readonly kind: "member"
      readonly generation: bigint
      readonly partitions: readonly number[]
      /** To be handed over: another member is about to join. */
      readonly pending: readonly number[]
    }
  /** The server does not know this member. */
  | { readonly kind: "outside" }
  /** Announced, and not yet a member. */
  | { readonly kind: "waiting" }
  /** The topic or the group does not exist. */
  | { readonly kind: "gone"; readonly error: MillraceError }

/** join: into every topic that it is not in, and ask. sync: ask. The claims are those that are still worked with. */
export interface MembershipCall {
  readonly name: "join" | "sync" | "leave"
  readonly claims: readonly OwnClaim[]
}

export type MembershipEvent = { readonly nowMs: number } /** One answer for each topic, in their order. */ & (
  | { readonly type: "viewed"; readonly topics: readonly TopicSync[] }
  | { readonly type: "failed"; readonly error: MillraceError }
  | { readonly type: "left" | "due" | "leave" | "sessionLost" | "sessionReady" }
  /** A commit was refused: ask now. */
  | { readonly type: "doubted" }
  | { readonly type: "release"; readonly claims: readonly number[] }
)

export type MembershipCommand =
  | { readonly type: "call"; readonly call: MembershipCall }
  /** Replaces the timer that is set. */
  | { readonly type: "arm"; readonly delayMs: number }
  | { readonly type: "offer" }
  /** The first join is done. */
  | { readonly type: "joined" }
  /** Nothing follows; the connection is not needed any more. */
  | { readonly type: "end"; readonly error?: MillraceError }

/** How often a member asks: when all is quiet, at most, and while something moves. */
const longestQuietMs = 250
const asksPerSession = 20
const restlessMs = 100
/** Something moves for so long after the last change. */
const unrestMs = 2000

export class MembershipMachine {
  readonly #claims: MembershipClaims
  readonly #quietMs: number
  readonly #gone: (MillraceError | undefined)[]
  #phase: Phase = "joining"
  #call: MembershipCall | undefined
  #commands: MembershipCommand[] = []
  #generations: string | undefined
  #outside = false
  #wantAsk = false
  #askedMs = 0
  #changedMs = Number.NEGATIVE_INFINITY
  #dueMs: number | undefined
  #tellFirst = false

  constructor(options: {
    readonly topics: number
    readonly sessionTimeoutMs: number
    readonly rebalanceTimeoutMs: number
  }) {
    this.#claims = new MembershipClaims(options.rebalanceTimeoutMs)
    this.#quietMs = Math.max(restlessMs, Math.min(longestQuietMs, options.sessionTimeoutMs / asksPerSession))
    this.#gone = Array.from({ length: options.topics }, () => undefined)
  }

  /** The first commands. */
  start(nowMs: number): readonly MembershipCommand[] {
    return this.#decide(nowMs)
  }

  /** One event. The commands are to be carried out in order, before the next event. */
  handle(event: MembershipEvent): readonly MembershipCommand[] {
    if (this.#phase === "ended") return []
    switch (event.type) {
      case "viewed": {
        const asked = this.#call?.name
        this.#call = undefined
        if (this.#phase !== "leaving") this.#see(event.topics, event.nowMs)
        // A join that leaves the member outside is tried again when it is due, not at once.
        if (asked === "sync") this.#wantAsk ||= this.#outside
        break
      }
      case "failed":
        this.#call = undefined
        this.#failed(event.error)
        break
      case "left":
        this.#call = undefined
        this.#end()
        break
      case "due":
        this.#dueMs = undefined
        this.#wantAsk = true
        break
      case "doubted":
        this.#wantAsk = true
        this.#changedMs = event.nowMs
        break
      case "release":
        this.#claims.release(event.claims)
        // Somebody waits for it.
        this.#wantAsk = true
        break
      case "sessionLost":
        this.#claims.forfeit()
        if (this.#phase === "member") this.#phase = "away"
        break
      case "sessionReady":
        this.#wantAsk = true
        break
      case "leave":
        this.#claims.forfeit()
        this.#phase = "leaving"
        break
    }
    return this.#decide(event.nowMs)
  }

  /** What the owner has not heard yet; `undefined` when there is nothing. The first time also when nothing was assigned. */
  take(nowMs: number): ClaimChange | undefined {
    if (this.#phase === "leaving" || !(this.#tellFirst || this.#claims.pending)) return undefined
    this.#tellFirst = false
    return this.#claims.take(nowMs)
  }

  /** Whether commits under the claim may be tried. */
  isLive(claim: number): boolean {
    return this.#claims.isLive(claim)
  }

  /** The claims that commits may be tried under. */
  live(): readonly OwnClaim[] {
    return this.#claims.live()
  }

  get phase(): Phase {
    return this.#phase
  }

  #see(topics: readonly TopicSync[], nowMs: number): void {
    this.#outside = false
    for (const [index, sync] of topics.entries()) this.#seeTopic(index, sync, nowMs)
    const gone = this.#gone.filter((error) => error !== undefined)
    const firstGone = gone[0]
    if (firstGone !== undefined && (this.#phase === "joining" || gone.length === this.#gone.length)) {
      this.#end(firstGone)
      return
    }
    this.#noteGenerations(topics, nowMs)
    if (this.#phase === "joining") {
      this.#tellFirst = true
      this.#commands.push({ type: "joined" })
    }
    this.#phase = "member"
  }

  #seeTopic(index: number, sync: TopicSync, nowMs: number): void {
    if (sync.kind === "member") {
      this.#claims.observe(index, { listed: sync.partitions, pending: sync.pending }, nowMs)
      return
    }
    this.#claims.forfeit(index)
    if (sync.kind === "gone") this.#gone[index] = sync.error
    else this.#outside = true
  }

  #noteGenerations(topics: readonly TopicSync[], nowMs: number): void {
    const generations = topics.map((sync) => (sync.kind === "member" ? sync.generation : sync.kind)).join()
    const waits = topics.some(({ kind }) => kind === "waiting")
    if (waits || generations !== this.#generations) this.#changedMs = nowMs
    this.#generations = generations
  }

  /** The first join is tried once; anything else again when it is due, if that can help. A leave that fails is done by the connection's end. */
  #failed(error: MillraceError): void {
    if (this.#phase === "leaving") this.#end()
    else if (this.#phase === "joining" || !error.retryable) this.#end(error)
  }

  #end(error?: MillraceError): void {
    this.#claims.forfeit()
    this.#phase = "ended"
    this.#commands.push({ type: "end", ...(error === undefined ? {} : { error }) })
  }

  /** The pump: derives what is to be done from the state alone. */
  #decide(nowMs: number): readonly MembershipCommand[] {
    if (this.#phase !== "ended") {
      this.#claims.expire(nowMs)
      if (this.#call === undefined) this.#callNext(nowMs)
      if (this.#phase !== "leaving" && (this.#tellFirst || this.#claims.pending)) this.#commands.push({ type: "offer" })
      this.#arm(nowMs)
    }
    const commands = this.#commands
    this.#commands = []
    return commands
  }

  #callNext(nowMs: number): void {
    if (this.#phase === "leaving") this.#begin("leave", nowMs)
    else if (this.#phase === "joining") this.#begin("join", nowMs)
    else if (this.#wantAsk) this.#begin(this.#phase === "away" || this.#outside ? "join" : "sync", nowMs)
  }

  #begin(name: MembershipCall["name"], nowMs: number): void {
    this.#wantAsk = false
    this.#askedMs = nowMs
    this.#call = { name, claims: this.#claims.live() }
    this.#commands.push({ type: "call", call: this.#call })
  }

  #arm(nowMs: number): void {
    if (this.#phase === "leaving" || this.#phase === "joining") return
    const restless = nowMs - this.#changedMs < unrestMs
    const askMs = this.#askedMs + (restless ? restlessMs : this.#quietMs)
    const dueMs = Math.max(nowMs + 1, Math.min(askMs, this.#claims.expiryMs() ?? askMs))
    if (this.#dueMs !== undefined && this.#dueMs <= dueMs) return
    this.#dueMs = dueMs
    this.#commands.push({ type: "arm", delayMs: dueMs - nowMs })
  }
}
