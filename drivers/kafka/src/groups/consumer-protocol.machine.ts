/**
 * The life of a member under KIP-848: everything goes through one heartbeat. The coordinator says what the member is to have; the member
 * says what it has; a partition that is wanted back goes to the next one when a heartbeat no longer names it. Pure.
 *
 *     phase      a heartbeat is due when                                    leaves by
 *     joining    at once, or after a pause                                  the first answer
 *     member     its interval is over, or something was released            fenced or unknown: joining; replaced: ended; leave
 *     leaving    at once, saying goodbye                                    its answer
 */
import { FencedError, type MillraceError } from "@millrace/contract"
import type { Fence } from "./claim-token.ts"
import { type ClaimChange, type NumberedSeat, type Seat, seatKey } from "./member-claims.ts"
import type { MemberCommand, MemberEvent, MemberMachine, MemberTimes } from "./member-machine.ts"
import { MemberPhase } from "./member-phase.ts"

export type ConsumerCall =
  | {
      readonly name: "beat"
      /** 0 joins. */
      readonly epoch: number
      /** Everything that describes the member: the coordinator may have missed the last heartbeat. */
      readonly full: boolean
      /** What the member has; absent when the coordinator knows. */
      readonly owned?: readonly Seat[]
    }
  | { readonly name: "leave"; readonly epoch: number }
  /** Removes the member that has the name. */
  | { readonly name: "evict" }

export type ConsumerAnswer =
  | {
      readonly kind: "beat"
      readonly epoch: number
      readonly intervalMs: number
      /** What the member is to have; absent when that has not changed. */
      readonly target?: readonly Seat[]
    }
  /** Fenced or unknown: no member any more. */
  | { readonly kind: "gone"; readonly error: MillraceError }
  /** Another has the name now. */
  | { readonly kind: "replaced"; readonly error: MillraceError }
  /** The name belongs to a member that lives. */
  | { readonly kind: "occupied"; readonly error: MillraceError }
  | { readonly kind: "left" }
  | { readonly kind: "evicted" }

/** What the machine must know of the member. */
export interface ConsumerMember extends MemberTimes {
  readonly group: string
  readonly memberId: string
  /** The stable name that it was given. */
  readonly instanceId: string | undefined
}

/** How often a name is wrested from the member that has it before the join gives up. */
const mostEvictions = 3

export class ConsumerProtocolMachine implements MemberMachine<ConsumerCall, ConsumerAnswer> {
  readonly #member: ConsumerMember
  readonly #state: MemberPhase<ConsumerCall>
  #epoch = 0
  #intervalMs: number
  /** What the coordinator has heard that the member has; `undefined`: unknown. */
  #heard: string | undefined
  /** Whether the next heartbeat describes the member in full. */
  #full = true
  /** What the heartbeat under way tells of. */
  #telling: readonly number[] = []
  #wantBeat = true
  #wantEviction = false
  #evictions = 0

  constructor(member: ConsumerMember) {
    this.#member = member
    this.#intervalMs = member.sessionTimeoutMs / 3
    this.#state = new MemberPhase(
      { group: member.group, memberId: member.instanceId ?? member.memberId },
      member.rebalanceTimeoutMs,
    )
  }

  start(nowMs: number): readonly MemberCommand<ConsumerCall>[] {
    return this.#decide(nowMs)
  }

  handle(event: MemberEvent<ConsumerAnswer>): readonly MemberCommand<ConsumerCall>[] {
    const state = this.#state
    switch (event.type) {
      case "answered":
        this.#answered(event.answer, event.nowMs)
        break
      case "failed":
        this.#full = true
        this.#heard = undefined
        if (state.failed(event.error, event.nowMs))
          state.nextMs = Math.min(state.nextMs, event.nowMs + this.#intervalMs)
        this.#wantBeat = false
        break
      case "due":
        state.due()
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
    const { memberId, instanceId } = this.#member
    return { memberId, generation: this.#epoch, instanceId }
  }

  #answered(answer: ConsumerAnswer, nowMs: number): void {
    const state = this.#state
    switch (answer.kind) {
      case "beat":
        this.#seen(answer, nowMs)
        break
      case "gone": {
        const rejoins = state.phase === "joining"
        state.answered()
        this.#forget()
        if (!state.known && !state.over) {
          state.end(answer.error)
          break
        }
        state.gone(nowMs, { pause: rejoins })
        this.#wantBeat = !rejoins
        break
      }
      case "replaced":
        state.answered()
        state.replaced(answer.error)
        break
      case "occupied":
        state.answered()
        this.#occupied(answer.error)
        break
      case "evicted":
        state.answered()
        this.#wantBeat = true
        break
      case "left":
        state.answered()
        state.left()
        break
    }
  }

  #seen(answer: ConsumerAnswer & { kind: "beat" }, nowMs: number): void {
    const state = this.#state
    this.#epoch = answer.epoch
    this.#intervalMs = answer.intervalMs
    this.#evictions = 0
    this.#full = false
    if (state.over) {
      state.answered()
      return
    }
    if (state.phase === "joining") state.joined()
    state.claims.acknowledge(this.#telling)
    this.#telling = []
    if (answer.target !== undefined) {
      state.claims.aim(answer.target, nowMs)
      // The coordinator may wait to hear that the member does not have what an answer that was lost had given it.
      this.#heard = undefined
    }
    state.nextMs = nowMs + answer.intervalMs
    state.answered()
  }

  /** A name that another holds: a member that joins takes it; one that comes back finds that it was taken from it. */
  #occupied(error: MillraceError): void {
    if (this.#state.over) return
    if (this.#state.known) {
      this.#state.replaced(error)
    } else if (this.#evictions < mostEvictions) {
      this.#evictions++
      this.#wantEviction = true
    } else {
      const { group, instanceId } = this.#member
      const message = `the name ${JSON.stringify(instanceId)} in group ${JSON.stringify(group)} belongs to a member that comes back whenever it is removed`
      this.#state.end(new FencedError(message, { context: { group, memberId: instanceId }, cause: error }))
    }
  }

  #forget(): void {
    this.#epoch = 0
    this.#full = true
    this.#heard = undefined
    this.#telling = []
  }

  #decide(nowMs: number): readonly MemberCommand<ConsumerCall>[] {
    const state = this.#state
    if (state.call === undefined) this.#callNext(nowMs)
    return state.commands(nowMs)
  }

  #callNext(nowMs: number): void {
    const state = this.#state
    if (state.phase === "leaving") {
      if (this.#epoch > 0) state.begin({ name: "leave", epoch: this.#epoch })
      else state.left()
    } else if (this.#wantEviction) {
      this.#wantEviction = false
      state.begin({ name: "evict" })
    } else if (state.phase === "joining") {
      if (this.#wantBeat) this.#beat(nowMs)
    } else if (state.phase === "member") {
      if (this.#wantBeat || (state.claims.releasing().length > 0 && !this.#resting(nowMs))) this.#beat(nowMs)
    }
  }

  /** After a failure the next heartbeat waits for the pause. */
  #resting(nowMs: number): boolean {
    return this.#state.pausing && nowMs < this.#state.nextMs
  }

  #beat(nowMs: number): void {
    const state = this.#state
    this.#wantBeat = false
    state.nextMs = nowMs + this.#intervalMs
    if (this.#epoch === 0) {
      state.begin({ name: "beat", epoch: 0, full: true, owned: [] })
      return
    }
    this.#telling = state.claims.releasing()
    const owned = state.claims.owned()
    const told = keyOf(owned)
    const news = this.#full || told !== this.#heard
    this.#heard = told
    state.bringWaiting()
    state.begin({
      name: "beat",
      epoch: this.#epoch,
      full: this.#full,
      ...(news ? { owned: owned.map(plainSeat) } : {}),
    })
  }
}

function keyOf(seats: readonly NumberedSeat[]): string {
  return seats.map(seatKey).toSorted().join("\u0001")
}

function plainSeat({ stream, topic, partition, topicId }: NumberedSeat): Seat {
  return { stream, topic, partition, topicId }
}
