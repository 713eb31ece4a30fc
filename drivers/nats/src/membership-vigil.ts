/**
 * Keeps watch over the others of a group: who gave no sign of life for too long, and what was not handed over in time. Pure.
 *
 * A sign of life is a heartbeat number that was not known. Only time in which this member listened counts, on its own monotonic clock:
 * a gap between two looks counts with `longestGapMs` at most, and a time without the server not at all, so that a member that was
 * itself stopped or cut off takes nobody for dead.
 */
import type { GroupView } from "./groups-view.ts"

/** The number of a member's last known heartbeat; -1 when it never sent one. */
export interface Sign {
  readonly member: number
  readonly beat: number
}

/** Whose time is over. `beat` is the last that was known: a newer one acquits. */
export interface Verdict {
  readonly silent: readonly Sign[]
  readonly overdue: readonly number[]
}

interface Watched {
  /** Absent until the first sign, which is then looked up. */
  beat: number | undefined
  limitMs: number
  watchedMs: number
}

/** One member's watch over the members of its present view. */
export class MembershipVigil {
  readonly #longestGapMs: number
  readonly #doubtMs: number
  readonly #graceMs: number
  readonly #peers = new Map<number, Watched>()
  readonly #passing = new Map<number, Watched>()
  #lookedMs: number | undefined

  /**
   * @param limits `doubtMs`: silence after which the heartbeat is looked up in the bucket, since one that was heard of may be missed.
   *   `graceMs`: added to the time of a claim that is being taken back, since its owner hears of it up to a heartbeat later.
   */
  constructor(limits: { readonly longestGapMs: number; readonly doubtMs: number; readonly graceMs: number }) {
    this.#longestGapMs = limits.longestGapMs
    this.#doubtMs = limits.doubtMs
    this.#graceMs = limits.graceMs
  }

  /** Watches those of this view, and forgets the others. */
  see({ peers, passing }: GroupView, nowMs: number): void {
    this.pass(nowMs)
    keep(
      this.#peers,
      peers.map(({ member, sessionTimeoutMs }) => ({ key: member, limitMs: sessionTimeoutMs })),
    )
    keep(
      this.#passing,
      passing.map(({ number, timeoutMs }) => ({ key: number, limitMs: timeoutMs + this.#graceMs })),
    )
  }

  /** A heartbeat was heard, or looked up. */
  hear({ member, beat }: Sign): void {
    const peer = this.#peers.get(member)
    if (peer === undefined || peer.beat === beat) return
    peer.beat = beat
    peer.watchedMs = 0
  }

  /** Time has passed under watch. */
  pass(nowMs: number): void {
    const gapMs = this.#lookedMs === undefined ? 0 : Math.min(nowMs - this.#lookedMs, this.#longestGapMs)
    this.#lookedMs = nowMs
    for (const watched of this.#peers.values()) watched.watchedMs += gapMs
    for (const watched of this.#passing.values()) watched.watchedMs += gapMs
  }

  /** Nothing could be heard since the last look: what was silence may have been deafness. */
  deafened(nowMs: number): void {
    this.#lookedMs = nowMs
    for (const peer of this.#peers.values()) peer.watchedMs = 0
  }

  /** Members whose heartbeat should be looked up. */
  doubtful(): readonly number[] {
    return [...this.#peers]
      .filter(([, { beat, watchedMs }]) => beat === undefined || watchedMs >= this.#doubtMs)
      .map(([member]) => member)
  }

  verdict(): Verdict {
    const silent = [...this.#peers].flatMap(([member, { beat, watchedMs, limitMs }]) =>
      beat !== undefined && watchedMs >= limitMs ? [{ member, beat }] : [],
    )
    const overdue = [...this.#passing].filter(([, { watchedMs, limitMs }]) => watchedMs >= limitMs)
    return { silent, overdue: overdue.map(([number]) => number) }
  }

  /** When the next one's time can be over; Infinity when nobody is watched. */
  dueMs(): number {
    let leftMs = Number.POSITIVE_INFINITY
    for (const { limitMs, watchedMs } of this.#peers.values()) leftMs = Math.min(leftMs, limitMs - watchedMs)
    for (const { limitMs, watchedMs } of this.#passing.values()) leftMs = Math.min(leftMs, limitMs - watchedMs)
    return (this.#lookedMs ?? 0) + leftMs
  }
}

function keep(all: Map<number, Watched>, wanted: readonly { readonly key: number; readonly limitMs: number }[]): void {
  const keys = new Set(wanted.map(({ key }) => key))
  for (const key of all.keys()) if (!keys.has(key)) all.delete(key)
  for (const { key, limitMs } of wanted) {
    const known = all.get(key)
    if (known === undefined) all.set(key, { beat: undefined, limitMs, watchedMs: 0 })
    else known.limitMs = limitMs
  }
}
