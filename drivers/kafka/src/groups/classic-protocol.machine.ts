/**
 * The life of a member under the classic protocol: join, sync, heartbeats; any change makes everybody join again (KIP-429: keeping what
 * they have, where the assignor is cooperative). One call `join` stands for both requests, and for the assignment when this member is the
 * one that makes it. Pure.
 *
 *     phase      calls                                                      leaves by
 *     joining    join, at once or after a pause                             its answer
 *     member     beat; join when the group rebalances or partitions         unknown or of an old generation: joining; replaced: ended;
 *                were handed over                                           leave
 *     leaving    leave                                                      its answer
 */
import type { MillraceError } from "@millrace/contract"
import type { Fence } from "./claim-token.ts"
import type { ClaimChange, NumberedSeat, Seat } from "./member-claims.ts"
import type { MemberCommand, MemberEvent, MemberMachine, MemberTimes } from "./member-machine.ts"
import { MemberPhase } from "./member-phase.ts"

export type ClassicCall =
  | {
      readonly name: "join"
      /** Empty: the coordinator gives one. */
      readonly memberId: string
      /** The generation that `owned` is from; −1: none. */
      readonly generation: number
      readonly owned: readonly Seat[]
    }
  | { readonly name: "beat"; readonly memberId: string; readonly generation: number }
  | { readonly name: "leave"; readonly memberId: string }

export type ClassicAnswer =
  | {
      readonly kind: "joined"
      readonly memberId: string
      readonly generation: number
      /** Whether the assignor gives everything anew: then everything is handed over before the next join. */
      readonly eager: boolean
      readonly target: readonly Seat[]
    }
  | { readonly kind: "beat" }
  /** Everybody is to join again. */
  | { readonly kind: "rebalance"; readonly memberId?: string }
  /** No member any more; with `unknown` not even the id is good. */
  | { readonly kind: "gone"; readonly unknown: boolean; readonly error: MillraceError }
  | { readonly kind: "replaced"; readonly error: MillraceError }
  | { readonly kind: "left" }

/** What the machine must know of the member. */
export interface ClassicMember extends MemberTimes {
  readonly group: string
  readonly instanceId: string | undefined
}

/** So many heartbeats fit into the session timeout, and into the time that a rebalance may take: it is by heartbeats that one is heard of. */
const beatsPerTimeout = 3
/** A heartbeat at least this often, in ms: so long a rebalance may go unnoticed. */
const longestBeatMs = 1000

export class ClassicProtocolMachine implements MemberMachine<ClassicCall, ClassicAnswer> {
  readonly #member: ClassicMember
  readonly #state: MemberPhase<ClassicCall>
  readonly #intervalMs: number
  #memberId = ""
  #generation = -1
  #eager = false
  #telling: readonly number[] = []
  #wantJoin = true
  #wantBeat = false

  constructor(member: ClassicMember) {
    this.#member = member
    const { sessionTimeoutMs, rebalanceTimeoutMs } = member
    this.#intervalMs = Math.min(longestBeatMs, Math.min(sessionTimeoutMs, rebalanceTimeoutMs) / beatsPerTimeout)
    this.#state = new MemberPhase({ group: member.group, memberId: member.instanceId }, member.rebalanceTimeoutMs)
  }

  start(nowMs: number): readonly MemberCommand<ClassicCall>[] {
    return this.#decide(nowMs)
  }

  handle(event: MemberEvent<ClassicAnswer>): readonly MemberCommand<ClassicCall>[] {
    const state = this.#state
    switch (event.type) {
      case "answered":
        this.#answered(event.answer, event.nowMs)
        break
      case "failed":
        if (state.call?.name === "join") this.#wantJoin = true
        if (state.failed(event.error, event.nowMs))
          state.nextMs = Math.min(state.nextMs, event.nowMs + this.#intervalMs)
        break
      case "due":
        state.due()
        if (state.claims.expire(event.nowMs)) this.#wantJoin = true
        if (event.nowMs >= state.nextMs) this.#wantBeat = true
        break
      case "release":
        state.release(event.ticket, event.claims)
        break
      case "leave":
        state.leave(event.ticket)
        break
    }
    return this.#decide(event.nowMs)
  }

  take(nowMs: number): ClaimChange | undefined {
    return this.#state.take(nowMs)
  }

  fence(claim: number): Fence | undefined {
    const { phase, claims } = this.#state
    if (phase !== "member" || !claims.isGood(claim)) return undefined
    return { memberId: this.#memberId, generation: this.#generation, instanceId: this.#member.instanceId }
  }

  #answered(answer: ClassicAnswer, nowMs: number): void {
    const state = this.#state
    switch (answer.kind) {
      case "joined":
        this.#joined(answer, nowMs)
        break
      case "beat":
        state.nextMs = nowMs + this.#intervalMs
        state.answered()
        break
      case "rebalance":
        if (answer.memberId !== undefined) this.#memberId = answer.memberId
        state.nextMs = nowMs + this.#intervalMs
        this.#wantJoin = true
        state.answered()
        break
      case "gone":
        this.#gone(answer, nowMs)
        break
      case "replaced":
        state.answered()
        state.replaced(answer.error)
        break
      case "left":
        state.answered()
        state.left()
        break
    }
  }

  #joined(answer: ClassicAnswer & { kind: "joined" }, nowMs: number): void {
    const state = this.#state
    this.#memberId = answer.memberId
    this.#generation = answer.generation
    this.#eager = answer.eager
    this.#wantBeat = false
    state.nextMs = nowMs + this.#intervalMs
    if (!state.over) {
      if (state.phase === "joining") state.joined()
      state.claims.acknowledge(this.#telling)
      // Where an eager assignor took over from a cooperative one, what it gave away is another's from now on.
      if (answer.eager) state.claims.aimAtOnce(answer.target, nowMs)
      else state.claims.aim(answer.target, nowMs)
    }
    this.#telling = []
    state.answered()
  }

  #gone(answer: ClassicAnswer & { kind: "gone" }, nowMs: number): void {
    const state = this.#state
    const again = state.phase === "joining"
    state.answered()
    if (answer.unknown) this.#memberId = ""
    this.#generation = -1
    this.#telling = []
    if (!state.known && !state.over) {
      state.end(answer.error)
      return
    }
    state.gone(nowMs, { pause: again })
    this.#wantJoin = true
  }

  #decide(nowMs: number): readonly MemberCommand<ClassicCall>[] {
    const state = this.#state
    if (state.call === undefined) this.#callNext(nowMs)
    return state.commands(nowMs, state.claims.expiresMs)
  }

  #callNext(nowMs: number): void {
    const state = this.#state
    switch (state.phase) {
      case "joining":
        if (this.#wantJoin && nowMs >= state.nextMs) this.#join()
        break
      case "member":
        this.#callAsMember(nowMs)
        break
      case "leaving":
        if (this.#memberId === "") state.left()
        else state.begin({ name: "leave", memberId: this.#memberId })
        break
      case "ended":
        break
    }
  }

  #callAsMember(nowMs: number): void {
    const state = this.#state
    const { claims } = state
    if (this.#wantJoin && this.#eager) claims.aim([], nowMs)
    const handedOver = !claims.leaving && (claims.releasing().length > 0 || this.#wantJoin)
    const joins = this.#wantJoin && !this.#eager
    if ((handedOver || joins) && !this.#resting(nowMs)) this.#join()
    else if (this.#wantBeat) {
      this.#wantBeat = false
      state.nextMs = nowMs + this.#intervalMs
      state.begin({ name: "beat", memberId: this.#memberId, generation: this.#generation })
    }
  }

  /** After a failure nothing is called before the pause is over. */
  #resting(nowMs: number): boolean {
    return this.#state.pausing && nowMs < this.#state.nextMs
  }

  #join(): void {
    const state = this.#state
    this.#wantJoin = false
    this.#wantBeat = false
    this.#telling = state.claims.releasing()
    state.bringWaiting()
    const owned = state.claims.owned().map(plainSeat)
    state.begin({ name: "join", memberId: this.#memberId, generation: this.#generation, owned })
  }
}

function plainSeat({ stream, topic, partition, topicId }: NumberedSeat): Seat {
  return { stream, topic, partition, topicId }
}
