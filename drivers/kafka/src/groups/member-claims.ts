/**
 * The claims of one member as its owner knows them, beside what the coordinator wants. Pure. What was not taken yet is merged: a claim
 * that comes and goes before anybody looked was never there.
 */
import type { TopicPartition } from "@millrace/contract"

/** What happens to a claim in each state; anything else leaves it as it is. */
const moves: Record<ClaimState, Partial<Record<Move, ClaimState | "gone">>> = {
  offered: { taken: "held", revoked: "releasing", vanished: "gone", released: "releasing" },
  held: { revoked: "revoking", vanished: "lost", released: "releasing" },
  revoking: { taken: "draining", kept: "held", vanished: "lost", released: "releasing" },
  draining: { vanished: "lost", released: "releasing" },
  releasing: { acknowledged: "gone", vanished: "gone" },
  lost: { taken: "gone", released: "gone" },
}

/**
 * - offered: the coordinator gave it, the owner has not heard.
 * - held: the owner works with it.
 * - revoking: the coordinator wants it back, the owner has not heard.
 * - draining: the owner has heard, and will release it.
 * - releasing: the owner is done with it, the coordinator has not heard. One that was offered and wanted back goes here by itself.
 * - lost: it is another's, the owner has not heard.
 */
type ClaimState = "offered" | "held" | "revoking" | "draining" | "releasing" | "lost"

/** revoked, kept: the coordinator wants it back, no longer does. acknowledged: it has heard of the release. vanished: it is void at once. */
type Move = "taken" | "revoked" | "kept" | "released" | "acknowledged" | "vanished"

/** A partition of one incarnation of a topic, as a coordinator gives it out. */
export interface Seat extends TopicPartition {
  readonly topicId: string
}

/** A seat under a number of its own: a seat that goes and comes back has another. */
export interface NumberedSeat extends Seat {
  readonly claim: number
}

/** What the owner hears. No seat is named twice, and no partition comes and goes in one change. */
export interface ClaimChange {
  readonly assigned: readonly NumberedSeat[]
  readonly revoked: readonly NumberedSeat[]
  readonly lost: readonly NumberedSeat[]
  /** How long the first of the revoked may still take, from now; the full time when none is revoked. */
  readonly deadlineMs: number
}

interface Entry {
  readonly seat: NumberedSeat
  state: ClaimState
  /** When it was first seen to be wanted back. */
  revokedMs: number
}

export class MemberClaims {
  readonly #entries = new Map<number, Entry>()
  readonly #rebalanceTimeoutMs: number
  #target: readonly Seat[] = []
  #lastNumber = 0

  constructor(rebalanceTimeoutMs: number) {
    this.#rebalanceTimeoutMs = rebalanceTimeoutMs
  }

  /** Takes over what the coordinator wants this member to have. What is to go is revoked, and goes when the owner has released it. */
  aim(target: readonly Seat[], nowMs: number): void {
    this.#target = target
    const wanted = new Set(target.map(seatKey))
    for (const entry of this.#entries.values()) {
      const before = entry.state
      this.#move(entry, wanted.has(seatKey(entry.seat)) ? "kept" : "revoked")
      if (entry.state === "revoking" && before === "held") entry.revokedMs = nowMs
    }
    this.#fill()
  }

  /** As `aim`, but what is to go is another's already. */
  aimAtOnce(target: readonly Seat[], nowMs: number): void {
    const wanted = new Set(target.map(seatKey))
    for (const entry of this.#entries.values()) if (!wanted.has(seatKey(entry.seat))) this.#move(entry, "vanished")
    this.aim(target, nowMs)
  }

  /** The member is none any more: all of its claims are void. */
  forfeit(): void {
    this.#target = []
    for (const entry of this.#entries.values()) this.#move(entry, "vanished")
  }

  /** Revoked claims whose time is over are void. Answers whether there were any. */
  expire(nowMs: number): boolean {
    let some = false
    for (const entry of this.#entries.values()) {
      if (!isLeaving(entry.state) || nowMs < entry.revokedMs + this.#rebalanceTimeoutMs) continue
      this.#move(entry, "vanished")
      some = true
    }
    return some
  }

  /** When the first revoked claim's time is over; infinite when there is none. */
  get expiresMs(): number {
    let dueMs = Number.POSITIVE_INFINITY
    for (const { state, revokedMs } of this.#entries.values()) {
      if (isLeaving(state)) dueMs = Math.min(dueMs, revokedMs + this.#rebalanceTimeoutMs)
    }
    return dueMs
  }

  /** The owner is done with these. Claims that it does not have are passed over. */
  release(claims: readonly number[]): void {
    for (const number of claims) {
      const entry = this.#entries.get(number)
      if (entry !== undefined) this.#move(entry, "released")
    }
  }

  /** What the coordinator must still hear of. */
  releasing(): readonly number[] {
    return [...this.#entries.values()].filter(({ state }) => state === "releasing").map(({ seat }) => seat.claim)
  }

  /** The coordinator has heard that these are free. */
  acknowledge(claims: readonly number[]): void {
    for (const number of claims) {
      const entry = this.#entries.get(number)
      if (entry !== undefined) this.#move(entry, "acknowledged")
    }
    this.#fill()
  }

  /** Whether the owner has yet to release something that is wanted back. */
  get leaving(): boolean {
    for (const { state } of this.#entries.values()) if (isLeaving(state)) return true
    return false
  }

  /** What the member has, as it tells the coordinator. */
  owned(): readonly NumberedSeat[] {
    const owned: NumberedSeat[] = []
    for (const { seat, state } of this.#entries.values()) if (isGood(state)) owned.push(seat)
    return owned
  }

  /** Whether a commit under this claim is right. */
  isGood(claim: number): boolean {
    const entry = this.#entries.get(claim)
    return entry !== undefined && isGood(entry.state)
  }

  /** Whether `take` would have something to tell. */
  get pending(): boolean {
    for (const { state } of this.#entries.values()) {
      if (state === "offered" || state === "revoking" || state === "lost") return true
    }
    return false
  }

  /** Tells the owner. A partition that was lost and is assigned again is told in two changes. */
  take(nowMs: number): ClaimChange {
    const revoked = this.#inState("revoking")
    const lost = this.#inState("lost")
    const leaving = new Set([...revoked, ...lost].map(({ seat }) => placeKey(seat)))
    const assigned = this.#inState("offered").filter(({ seat }) => !leaving.has(placeKey(seat)))
    const left = revoked.map(({ revokedMs }) => revokedMs + this.#rebalanceTimeoutMs - nowMs)
    for (const entry of [...revoked, ...lost, ...assigned]) this.#move(entry, "taken")
    return {
      assigned: assigned.map(({ seat }) => seat),
      revoked: revoked.map(({ seat }) => seat),
      lost: lost.map(({ seat }) => seat),
      deadlineMs: Math.max(0, Math.min(this.#rebalanceTimeoutMs, ...left)),
    }
  }

  /** Offers what is wanted and not there. A partition whose older claim is not gone yet waits for that. */
  #fill(): void {
    const taken = new Set<string>()
    for (const { seat, state } of this.#entries.values()) if (state !== "lost") taken.add(placeKey(seat))
    for (const seat of this.#target) {
      const place = placeKey(seat)
      if (taken.has(place)) continue
      taken.add(place)
      const claim = ++this.#lastNumber
      const { stream, topic, partition, topicId } = seat
      const entry: Entry = { seat: { stream, topic, partition, topicId, claim }, state: "offered", revokedMs: 0 }
      this.#entries.set(claim, entry)
    }
  }

  #inState(state: ClaimState): Entry[] {
    return [...this.#entries.values()].filter((entry) => entry.state === state)
  }

  #move(entry: Entry, move: Move): void {
    const next = moves[entry.state][move]
    if (next === "gone") this.#entries.delete(entry.seat.claim)
    else if (next !== undefined) entry.state = next
  }
}

function isGood(state: ClaimState): boolean {
  return state === "offered" || state === "held" || isLeaving(state)
}

function isLeaving(state: ClaimState): boolean {
  return state === "revoking" || state === "draining"
}

/** What tells the incarnations of a partition apart. */
export function seatKey({ topicId, stream, topic, partition }: Seat): string {
  return `${topicId}\u0000${stream}\u0000${topic}\u0000${partition}`
}

function placeKey({ stream, topic, partition }: TopicPartition): string {
  return `${stream}\u0000${topic}\u0000${partition}`
}
