/**
 * The claims of one member as its owner knows them, beside what the group's record says. Pure. What the owner has not heard yet is
 * merged: a claim that came and went unheard was never there.
 */
import type { OwnClaim } from "./groups-view.ts"

/** What follows on what; anything else leaves a claim as it is. `forget` ends it. */
const transitions: Record<ClaimState, Partial<Record<ClaimEvent, ClaimState | "forget">>> = {
  unheard: { heard: "owned", wanted: "letGo", void: "forget", done: "letGo" },
  owned: { wanted: "asked", void: "gone", done: "letGo" },
  asked: { heard: "draining", unwanted: "owned", void: "gone", done: "letGo" },
  draining: { void: "gone", done: "letGo" },
  letGo: { void: "forget" },
  gone: { heard: "forget", done: "forget" },
}

/**
 * - unheard: the record gives it to the member, the owner has not heard.
 * - owned: the owner works with it.
 * - asked: it is to be handed over, the owner has not heard.
 * - draining: the owner has heard and will release it.
 * - letGo: the owner is done with it, the record does not say so yet. A claim that was never heard of and is wanted goes here by itself.
 * - gone: it is void, the owner has not heard.
 */
type ClaimState = "unheard" | "owned" | "asked" | "draining" | "letGo" | "gone"
/** heard: told to the owner. wanted, unwanted, void: what the record says. done: the owner released it. */
type ClaimEvent = "heard" | "wanted" | "unwanted" | "void" | "done"

/** What the owner is told in one go. No partition is in two of the lists. */
export interface ClaimNews {
  readonly assigned: readonly OwnClaim[]
  readonly revoked: readonly OwnClaim[]
  readonly lost: readonly OwnClaim[]
  /** What is left of the time for the first of the revoked; the whole time when none is. */
  readonly deadlineMs: number
}

interface Held {
  readonly claim: OwnClaim
  state: ClaimState
  /** When the record was first seen to want it. */
  wantedMs: number
}

/** One entry a claim that the owner has, will hear of, or will hear that it lost. */
export class MembershipClaims {
  readonly #held = new Map<number, Held>()
  readonly #rebalanceTimeoutMs: number

  constructor(rebalanceTimeoutMs: number) {
    this.#rebalanceTimeoutMs = rebalanceTimeoutMs
  }

  /** Takes over what the record says now. */
  see(claims: readonly OwnClaim[], nowMs: number): void {
    const named = new Set(claims.map(({ number }) => number))
    for (const [number, held] of this.#held) if (!named.has(number)) this.#apply(held, "void")
    for (const claim of claims) {
      const held = this.#held.get(claim.number) ?? { claim, state: "unheard", wantedMs: nowMs }
      this.#held.set(claim.number, held)
      const before = held.state
      this.#apply(held, claim.wanted ? "wanted" : "unwanted")
      if (before === "owned" && held.state === "asked") held.wantedMs = nowMs
    }
  }

  /** The member is none any more. */
  loseAll(): void {
    for (const held of this.#held.values()) this.#apply(held, "void")
  }

  /** The owner is done with these; those that it does not have are passed over. */
  release(numbers: readonly number[]): void {
    for (const number of numbers) {
      const held = this.#held.get(number)
      if (held !== undefined) this.#apply(held, "done")
    }
  }

  /** What the record must still be told of. */
  released(): readonly number[] {
    return this.#in("letGo").map(({ claim }) => claim.number)
  }

  /** Whether there is news for the owner. */
  get news(): boolean {
    for (const { state } of this.#held.values()) if (toTell.has(state)) return true
    return false
  }

  /** The news. A partition that was lost and came back unheard is told in two goes, the loss first. */
  tell(nowMs: number): ClaimNews {
    const revoked = this.#in("asked")
    const lost = this.#in("gone")
    const leaving = new Set([...revoked, ...lost].map(({ claim }) => placeOf(claim)))
    const assigned = this.#in("unheard").filter(({ claim }) => !leaving.has(placeOf(claim)))
    const leftMs = revoked.map(({ wantedMs }) => wantedMs + this.#rebalanceTimeoutMs - nowMs)
    for (const held of [...revoked, ...lost, ...assigned]) this.#apply(held, "heard")
    return {
      assigned: assigned.map(({ claim }) => claim),
      revoked: revoked.map(({ claim }) => claim),
      lost: lost.map(({ claim }) => claim),
      deadlineMs: Math.max(0, Math.min(this.#rebalanceTimeoutMs, ...leftMs)),
    }
  }

  #in(state: ClaimState): Held[] {
    return [...this.#held.values()].filter((held) => held.state === state)
  }

  #apply(held: Held, event: ClaimEvent): void {
    const next = transitions[held.state][event]
    if (next === "forget") this.#held.delete(held.claim.number)
    else if (next !== undefined) held.state = next
  }
}

const toTell: ReadonlySet<ClaimState> = new Set(["unheard", "asked", "gone"])

function placeOf({ stream, topic, partition }: OwnClaim): string {
  return JSON.stringify([stream, topic, partition])
}
