/**
 * The claims of one member as its owner knows them, beside what the server says. Pure. What was not taken yet is merged: a claim that
 * comes and goes before anybody looked was never there.
 */

/** What happens to a claim in each state; anything else leaves it as it is. */
const moves: Record<ClaimState, Partial<Record<Move, ClaimState | "gone">>> = {
  offered: { taken: "held", pending: "gone", vanished: "gone", released: "gone" },
  held: { pending: "revoking", vanished: "lost", released: "gone" },
  revoking: { taken: "draining", kept: "held", vanished: "lost", released: "gone" },
  draining: { vanished: "lost", released: "gone" },
  lost: { taken: "gone", released: "gone" },
}

/**
 * - offered: the server gave it, the owner has not heard.
 * - held: the owner works with it.
 * - revoking: it is to be handed over, the owner has not heard.
 * - draining: the owner has heard, and will release it.
 * - lost: it is another's, the owner has not heard.
 */
type ClaimState = "offered" | "held" | "revoking" | "draining" | "lost"

/** taken: the owner hears. kept, pending, vanished: it is the member's, is to be handed over, is another's. released: by the owner. */
type Move = "taken" | "kept" | "pending" | "vanished" | "released"

/** One claim: a partition of one of the member's topics, for the time that it is the member's. */
export interface OwnClaim {
  readonly claim: number
  /** Index of the topic among those that the member asked for. */
  readonly topic: number
  readonly partition: number
}

/** What the owner hears. Nothing is named twice, and no partition comes and goes in one change. */
export interface ClaimChange {
  readonly assigned: readonly OwnClaim[]
  readonly revoked: readonly OwnClaim[]
  readonly lost: readonly OwnClaim[]
  /** How long the first of the revoked may still take, from now; the full time when none is revoked. */
  readonly deadlineMs: number
}

interface Entry extends OwnClaim {
  state: ClaimState
  revokedMs: number
}

export class MembershipClaims {
  readonly #entries = new Map<number, Entry>()
  readonly #rebalanceTimeoutMs: number
  #last = 0

  constructor(rebalanceTimeoutMs: number) {
    this.#rebalanceTimeoutMs = rebalanceTimeoutMs
  }

  /** Takes over what is known of one topic: what is the member's, and what of that it is to hand over. */
  observe(
    topic: number,
    server: { readonly listed: readonly number[]; readonly pending: readonly number[] },
    nowMs: number,
  ): void {
    const [listed, pending] = [new Set(server.listed), new Set(server.pending)]
    const there = new Set<number>()
    for (const entry of [...this.#entries.values()]) {
      if (entry.topic !== topic || entry.state === "lost") continue
      there.add(entry.partition)
      // What the owner drains stays revoked, even when the server lists it again: it is offered anew once it was released.
      if (listed.has(entry.partition)) this.#move(entry, "kept")
      else if (pending.has(entry.partition)) this.#pend(entry, nowMs)
      else this.#move(entry, "vanished")
    }
    for (const partition of server.listed) {
      if (there.has(partition)) continue
      const claim = ++this.#last
      this.#entries.set(claim, { claim, topic, partition, state: "offered", revokedMs: 0 })
    }
  }

  /** Claims that were to be drained by now are void. */
  expire(nowMs: number): void {
    for (const entry of [...this.#entries.values()]) {
      if (this.#leaving(entry) && nowMs >= entry.revokedMs + this.#rebalanceTimeoutMs) this.#move(entry, "vanished")
    }
  }

  /** The member is none any more, of one topic or of all: its claims are void. */
  forfeit(topic?: number): void {
    for (const entry of [...this.#entries.values()]) {
      if (topic === undefined || entry.topic === topic) this.#move(entry, "vanished")
    }
  }

  /** The owner is done with these. Claims that it does not have are passed over. */
  release(claims: readonly number[]): void {
    for (const claim of claims) {
      const entry = this.#entries.get(claim)
      if (entry !== undefined) this.#move(entry, "released")
    }
  }

  /** Whether the claim still allows commits. */
  isLive(claim: number): boolean {
    const state = this.#entries.get(claim)?.state
    return state !== undefined && state !== "lost"
  }

  /** All that still allow commits. */
  live(): readonly OwnClaim[] {
    return [...this.#entries.values()]
      .filter(({ state }) => state !== "lost")
      .map(({ claim, topic, partition }) => ({ claim, topic, partition }))
  }

  /** When the first claim that is to be drained expires; `undefined` when none is. */
  expiryMs(): number | undefined {
    const expiries = [...this.#entries.values()]
      .filter((entry) => this.#leaving(entry))
      .map(({ revokedMs }) => revokedMs)
    return expiries.length === 0 ? undefined : Math.min(...expiries) + this.#rebalanceTimeoutMs
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
    const leaving = new Set([...revoked, ...lost].map(placeOf))
    const assigned = this.#inState("offered").filter((entry) => !leaving.has(placeOf(entry)))
    const left = revoked.map(({ revokedMs }) => revokedMs + this.#rebalanceTimeoutMs - nowMs)
    for (const entry of [...revoked, ...lost, ...assigned]) this.#move(entry, "taken")
    return {
      assigned: assigned.map(plain),
      revoked: revoked.map(plain),
      lost: lost.map(plain),
      deadlineMs: Math.max(0, Math.min(this.#rebalanceTimeoutMs, ...left)),
    }
  }

  #pend(entry: Entry, nowMs: number): void {
    const before = entry.state
    this.#move(entry, "pending")
    if (before === "held") entry.revokedMs = nowMs
  }

  #leaving({ state }: Entry): boolean {
    return state === "revoking" || state === "draining"
  }

  #inState(state: ClaimState): Entry[] {
    return [...this.#entries.values()].filter((entry) => entry.state === state)
  }

  #move(entry: Entry, move: Move): void {
    const next = moves[entry.state][move]
    if (next === "gone") this.#entries.delete(entry.claim)
    else if (next !== undefined) entry.state = next
  }
}

function placeOf({ topic, partition }: OwnClaim): string {
  return `${topic}/${partition}`
}

function plain({ claim, topic, partition }: Entry): OwnClaim {
  return { claim, topic, partition }
}
