import type { FeedLane } from "../handler/message-feed.ts"
import type { Message } from "../record/message.ts"

/** Messages of one partition, in order: what a group's filter selects of a run of records. */
export interface MatchedPage<M extends Message = Message> {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  /** At least one. */
  readonly messages: readonly M[]
}

/** A page that was handed out. */
interface Entry {
  readonly first: bigint
  readonly last: bigint
  /** Offsets that are not acknowledged. */
  readonly unacked: Set<bigint>
}

/** The pages that were handed out and are not acknowledged in full. */
export class PageLedger {
  readonly #byLane = new Map<FeedLane, Entry[]>()
  #size = 0

  /** How many pages there are. */
  get size(): number {
    return this.#size
  }

  has(lane: FeedLane): boolean {
    return this.#byLane.has(lane)
  }

  /** A page is handed out, behind those of its partition before. */
  add(lane: FeedLane, offsets: readonly bigint[]): void {
    const entry = { first: offsets[0] as bigint, last: offsets.at(-1) as bigint, unacked: new Set(offsets) }
    const entries = this.#byLane.get(lane)
    if (entries === undefined) this.#byLane.set(lane, [entry])
    else entries.push(entry)
    this.#size++
  }

  /** What was handed out of a partition and is not acknowledged, up to and with an offset. */
  unackedThrough(lane: FeedLane, offset: bigint): bigint[] {
    const entries = this.#byLane.get(lane) ?? []
    return entries.flatMap(({ unacked }) => [...unacked].filter((one) => one <= offset))
  }

  /** @returns whether the message was handed out, and not acknowledged before */
  acknowledge(lane: FeedLane, offset: bigint): boolean {
    const entries = this.#byLane.get(lane) ?? []
    const index = entries.findIndex(({ first, last }) => first <= offset && offset <= last)
    const unacked = entries[index]?.unacked
    if (unacked?.delete(offset) !== true) return false
    if (unacked.size > 0) return true
    entries.splice(index, 1)
    this.#size--
    if (entries.length === 0) this.#byLane.delete(lane)
    return true
  }

  /** Forgets the pages of a partition. */
  drop(lane: FeedLane): void {
    this.#size -= this.#byLane.get(lane)?.length ?? 0
    this.#byLane.delete(lane)
  }
}
