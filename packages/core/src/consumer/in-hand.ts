import type { Lane, Slice } from "../partition/lane.ts"
import { passHoles } from "../partition/lane-holes.ts"
import type { Acknowledgement } from "../progress/commit-policy.ts"

/** What of a run of messages is handled once it was handed out: all, all but the last one, none. */
export type Handled = "everything" | "butLast" | "nothing"

/** What a caller that reads by itself handles by being handed more. */
export function handledByLeaving(counts: Acknowledgement["counts"]): Handled {
  if (counts === "asking") return "butLast"
  return counts === "delivery" ? "everything" : "nothing"
}

/** Keeps track of the partitions of which something is handed out and not handled, and of who waits until nothing is. */
export class InHand {
  readonly #handled: (lane: Lane, count: number) => void
  readonly #letsGo: boolean
  #lanes: Lane[] = []
  #clearings: { readonly lane: Lane; readonly resolve: () => void }[] = []
  #unasked = false

  /**
   * @param handled The handled prefix of the partition has moved; `count` messages were handled since the last time.
   * @param letsGo Once the caller asks for more, no partition waits for what is open of it: its commits come when they come.
   */
  constructor(handled: (lane: Lane, count: number) => void, { letsGo }: { readonly letsGo: boolean }) {
    this.#handled = handled
    this.#letsGo = letsGo
  }

  /** Whether something was handed out since the caller last asked for more. */
  get unasked(): boolean {
    return this.#unasked
  }

  get lanes(): readonly Lane[] {
    return this.#lanes
  }

  /** Everything of the partition before `next` is handled. */
  through(lane: Lane, next: bigint): void {
    const before = lane.ranges.prefix
    this.#note(lane, before, lane.ranges.through(next))
  }

  /** One message of the partition is handled. */
  one(lane: Lane, offset: bigint): void {
    const before = lane.ranges.prefix
    this.#note(lane, before, lane.ranges.add(offset, offset + 1n))
  }

  /** Everything that was handed out is handled. */
  all(): void {
    const lanes = this.#lanes
    if (lanes.length === 0) return
    this.#lanes = []
    for (const lane of lanes) {
      lane.inHand = false
      if (lane.live) this.through(lane, lane.handedNext as bigint)
    }
    this.#tellCleared()
  }

  /** What is open of the partition counts no more. */
  forget(lane: Lane): void {
    lane.uncounted = 0
    this.#leave(lane)
    this.#tellCleared()
  }

  /** The records of the slice before `to` were handed out. @param handled Which of them are handled by that */
  took(slice: Slice, to: number, handled: Handled): void {
    const { lane, source, index: from } = slice
    const { batch } = source
    const offset = batch.offset(to - 1)
    const next = to === slice.count ? slice.after : offset + 1n
    const before = lane.ranges.prefix
    slice.index = to
    passHoles(lane, batch, { from, to, next })
    lane.handedOffset = offset
    lane.handedNext = next
    this.#unasked = true
    const count = handled === "nothing" ? 0 : lane.ranges.through(handled === "everything" ? next : offset)
    this.#note(lane, before, count)
  }

  /** Nothing has the offsets behind what was handed out, up to `next`. */
  passed(lane: Lane, next: bigint): void {
    const before = lane.ranges.prefix
    lane.ranges.add(lane.handedNext ?? before, next)
    lane.handedNext = next
    this.#note(lane, before, 0)
  }

  /** The caller asks for more. */
  asked(): void {
    this.#unasked = false
    this.#tellCleared()
  }

  /** Settles once nothing of the partition is open, or it is let go. */
  whenClear(lane: Lane): Promise<void> {
    if (this.#isClear(lane)) return Promise.resolve()
    return new Promise((resolve) => this.#clearings.push({ lane, resolve }))
  }

  /** The ranges of the partition have changed from the prefix `before`, by `count` messages more that are handled. */
  #note(lane: Lane, before: bigint, count: number): void {
    const open = lane.handedNext !== undefined && lane.ranges.prefix < lane.handedNext
    if (open && !lane.inHand) {
      lane.inHand = true
      this.#lanes.push(lane)
    } else if (!open) this.#leave(lane)
    lane.uncounted += count
    if (lane.ranges.prefix > before) {
      const counted = lane.uncounted
      lane.uncounted = 0
      this.#handled(lane, counted)
    }
    this.#tellCleared()
  }

  #isClear(lane: Lane): boolean {
    return !lane.inHand || (this.#letsGo && !this.#unasked)
  }

  #leave(lane: Lane): void {
    if (!lane.inHand) return
    lane.inHand = false
    this.#lanes.splice(this.#lanes.indexOf(lane), 1)
  }

  #tellCleared(): void {
    if (this.#clearings.length === 0) return
    const waiting = this.#clearings
    this.#clearings = []
    for (const one of waiting) {
      if (this.#isClear(one.lane)) one.resolve()
      else this.#clearings.push(one)
    }
  }
}
