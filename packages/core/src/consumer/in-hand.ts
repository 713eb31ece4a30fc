import type { Lane } from "./lane.ts"

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
    this.note(lane, before, lane.ranges.through(next))
  }

  /** One message of the partition is handled. */
  one(lane: Lane, offset: bigint): void {
    const before = lane.ranges.prefix
    this.note(lane, before, lane.ranges.add(offset, offset + 1n))
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

  /** The ranges of the partition have changed from the prefix `before`, by `count` messages more that are handled. */
  note(lane: Lane, before: bigint, count: number): void {
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

  /** What is open of the partition counts no more. */
  forget(lane: Lane): void {
    this.#leave(lane)
    this.#tellCleared()
  }

  /** Something more was handed out. */
  took(): void {
    this.#unasked = true
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
