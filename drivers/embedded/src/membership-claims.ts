/**
 * The claims of one member as its owner knows them, beside what the store says. Pure. What was not taken yet is merged: a claim that
 * comes and goes before anybody looked was never there.
 */
import type { OwnClaim } from "./engine/group-view.ts"

/** What happens to a claim in each state; anything else leaves it as it is. */
const moves: Record<ClaimState, Partial<Record<Move, ClaimState | "gone">>> = {
  offered: { taken: "held", revoked: "releasing", vanished: "gone", released: "releasing" },
  held: { revoked: "revoking", vanished: "lost", released: "releasing" },
  revoking: { taken: "draining", kept: "held", vanished: "lost", released: "releasing" },
  draining: { vanished: "lost", released: "releasing" },
  releasing: { vanished: "gone" },
  lost: { taken: "gone", released: "gone" },
}

/**
 * - offered: the store gave it, the owner has not heard.
 * - held: the owner works with it.
 * - revoking: the store wants it back, the owner has not heard.
 * - draining: the owner has heard, and will release it.
 * - releasing: the owner is done with it, the store has not heard. A claim that was offered and wanted back goes here by itself.
 * - lost: it is another's, the owner has not heard.
 */
type ClaimState = "offered" | "held" | "revoking" | "draining" | "releasing" | "lost"

/** taken: the owner hears. revoked, kept, vanished: the store wants it back, no longer does, has it no more. released: by the owner. */
type Move = "taken" | "revoked" | "kept" | "vanished" | "released"

/** What the owner hears. Numbers are claims; nothing is named twice, and no partition comes and goes in one change. */
export interface ClaimChange {
  readonly assigned: readonly OwnClaim[]
  readonly revoked: readonly OwnClaim[]
  readonly lost: readonly OwnClaim[]
  /** How long the first of the revoked may still take, from now; the full time when none is revoked. */
  readonly deadlineMs: number
}

interface Entry {
  readonly claim: OwnClaim
  state: ClaimState
  /** When the store was first seen to want it back. */
  revokedMs: number
}

/** The claims of one member. At most one entry a partition, and one more for each that was lost and given back unheard. */
export class MembershipClaims {
  readonly #entries = new Map<number, Entry>()
  readonly #rebalanceTimeoutMs: number

  constructor(rebalanceTimeoutMs: number) {
    this.#rebalanceTimeoutMs = rebalanceTimeoutMs
  }

  /** Takes over what the store says. */
  observe(claims: readonly OwnClaim[], nowMs: number): void {
    const listed = new Set(claims.map(({ claim }) => claim))
    for (const [number, entry] of this.#entries) if (!listed.has(number)) this.#move(entry, "vanished")
    for (const claim of claims) {
      let entry = this.#entries.get(claim.claim)
      if (entry === undefined) {
        entry = { claim, state: "offered", revokedMs: 0 }
        this.#entries.set(claim.claim, entry)
      }
      const before = entry.state
      this.#move(entry, claim.revoking ? "revoked" : "kept")
      if (entry.state === "revoking" && before !== "revoking") entry.revokedMs = nowMs
    }
  }

  /** The member is none any more: all of its claims are void. */
  forfeit(): void {
    for (const entry of this.#entries.values()) this.#move(entry, "vanished")
  }

  /** The owner is done with these. Claims that it does not have are passed over. */
  release(claims: readonly number[]): void {
    for (const number of claims) {
      const entry = this.#entries.get(number)
      if (entry !== undefined) this.#move(entry, "released")
    }
  }

  /** What the store must still hear of. */
  releasing(): readonly number[] {
    return [...this.#entries.values()].filter(({ state }) => state === "releasing").map(({ claim }) => claim.claim)
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
    const leaving = new Set([...revoked, ...lost].map(({ claim }) => placeOf(claim)))
    const assigned = this.#inState("offered").filter(({ claim }) => !leaving.has(placeOf(claim)))
    const left = revoked.map(({ revokedMs }) => revokedMs + this.#rebalanceTimeoutMs - nowMs)
    for (const entry of [...revoked, ...lost, ...assigned]) this.#move(entry, "taken")
    return {
      assigned: assigned.map(({ claim }) => claim),
      revoked: revoked.map(({ claim }) => claim),
      lost: lost.map(({ claim }) => claim),
      deadlineMs: Math.max(0, Math.min(this.#rebalanceTimeoutMs, ...left)),
    }
  }

  #inState(state: ClaimState): Entry[] {
    return [...this.#entries.values()].filter((entry) => entry.state === state)
  }

  #move(entry: Entry, move: Move): void {
    const next = moves[entry.state][move]
    if (next === "gone") this.#entries.delete(entry.claim.claim)
    else if (next !== undefined) entry.state = next
  }
}

function placeOf({ stream, topic, partition }: OwnClaim): string {
  return JSON.stringify([stream, topic, partition])
}
