/**
 * Keeps watch over the others of a group: who was silent for too long, and which revoked partitions were not released in time. Pure.
 *
 * Only time that was watched counts, on this member's monotonic clock. Between two looks at most `longestGapMs` count, so that a
 * member that was itself stopped for a while does not take the others' part of that while for silence.
 */
import type { GroupView } from "./engine/group-view.ts"

/** Who is to go, and what is to be taken away. */
export interface Verdict {
  readonly silent: readonly { readonly member: number; readonly beats: number }[]
  readonly overdue: readonly number[]
}

interface Watched {
  /** The heartbeat counter of a member; 0 for a claim. */
  readonly beats: number
  readonly limitMs: number
  watchedMs: number
}

/** One member's watch. Forgets whoever is no longer in the view. */
export class MembershipVigil {
  readonly #longestGapMs: number
  readonly #graceMs: number
  #peers = new Map<number, Watched>()
  #revoking = new Map<number, Watched>()
  #lastLookMs: number | undefined

  /**
   * @param graceMs Added to the time of a revoked partition: its owner hears of it up to one heartbeat later.
   */
  constructor(limits: { readonly longestGapMs: number; readonly graceMs: number }) {
    this.#longestGapMs = limits.longestGapMs
    this.#graceMs = limits.graceMs
  }

  /** Takes a look. Answers whose time is over. */
  look(view: GroupView, nowMs: number): Verdict {
    const gapMs = this.#lastLookMs === undefined ? 0 : Math.min(nowMs - this.#lastLookMs, this.#longestGapMs)
    this.#lastLookMs = nowMs
    const peers = new Map<number, Watched>()
    for (const { member, beats, sessionTimeoutMs } of view.peers) {
      peers.set(member, watched(this.#peers.get(member), { beats, limitMs: sessionTimeoutMs, gapMs }))
    }
    const revoking = new Map<number, Watched>()
    for (const { claim, timeoutMs } of view.revoking) {
      const limitMs = timeoutMs + this.#graceMs
      revoking.set(claim, watched(this.#revoking.get(claim), { beats: 0, limitMs, gapMs }))
    }
    this.#peers = peers
    this.#revoking = revoking
    return {
      silent: [...peers].filter(([, peer]) => over(peer)).map(([member, { beats }]) => ({ member, beats })),
      overdue: [...revoking].filter(([, claim]) => over(claim)).map(([claim]) => claim),
    }
  }

  /** When the next one's time can be over; Infinity when nobody is watched. */
  dueMs(): number {
    let leftMs = Number.POSITIVE_INFINITY
    for (const { limitMs, watchedMs } of this.#peers.values()) leftMs = Math.min(leftMs, limitMs - watchedMs)
    for (const { limitMs, watchedMs } of this.#revoking.values()) leftMs = Math.min(leftMs, limitMs - watchedMs)
    return (this.#lastLookMs ?? 0) + leftMs
  }
}

function watched(
  known: Watched | undefined,
  { beats, limitMs, gapMs }: { readonly beats: number; readonly limitMs: number; readonly gapMs: number },
): Watched {
  const watchedMs = known === undefined || known.beats !== beats ? 0 : known.watchedMs + gapMs
  return { beats, limitMs, watchedMs }
}

function over({ watchedMs, limitMs }: Watched): boolean {
  return watchedMs >= limitMs
}
