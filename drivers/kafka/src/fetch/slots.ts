/** The partitions of a reader: which there are, whether they have something to tell, and the turns in which they tell it. */
import type { PartitionRead, ReadLimits, ReadPosition } from "@millrace/contract"
import type { KafkaEncodedBatch } from "../records/encoded-batch.ts"
import { Slot, slotKey } from "./slot.ts"

export class Slots implements Iterable<Slot> {
  #slots = new Map<string, Slot>()
  #turn = 0

  get size(): number {
    return this.#slots.size
  }

  [Symbol.iterator](): Iterator<Slot> {
    return this.#slots.values()
  }

  /** Replaces the partitions. Those that stand where they are wanted stay as they are. */
  set(positions: readonly ReadPosition[]): void {
    const slots = new Map<string, Slot>()
    for (const position of positions) {
      const key = slotKey(position)
      const old = this.#slots.get(key)
      if (old?.continues(position)) {
        old.claim = position.claim
        slots.set(key, old)
      } else slots.set(key, new Slot(position))
    }
    this.#slots = slots
  }

  /** Whether the slot was not replaced since. */
  has(slot: Slot): boolean {
    return this.#slots.get(slotKey(slot.position)) === slot
  }

  get queuedBytes(): number {
    let bytes = 0
    for (const slot of this.#slots.values()) bytes += slot.queuedBytes
    return bytes
  }

  /** Whether of some partition that was asked for nothing is known yet. */
  get unheard(): boolean {
    for (const slot of this.#slots.values()) if (slot.unheard) return true
    return false
  }

  /**
   * Whether there is enough to answer: the records wanted, or as many bytes as may be, or anything that is no record.
   * @param freshFrom With a poll that does not wait: it is also enough when requests from this number on have told of every slot.
   */
  canAnswer(limits: ReadLimits, freshFrom: number | undefined): boolean {
    let records = 0
    let bytes = 0
    let fresh = freshFrom !== undefined
    for (const slot of this.#slots.values()) {
      if (slot.tellable && slot.queue.length === 0) return true
      records += slot.queuedRecords
      bytes += slot.queuedBytes
      if (fresh && !isFresh(slot, freshFrom as number)) fresh = false
    }
    const wanted = Math.min(limits.minRecords, limits.maxRecords)
    return (records > 0 && records >= wanted) || (bytes > 0 && bytes >= limits.maxBytes) || fresh
  }

  /** Whole batches within the limits, one of each partition in turn; the first comes whatever its size. */
  take(limits: ReadLimits): PartitionRead[] {
    const slots = this.#inTurn()
    const taken = new Map<Slot, KafkaEncodedBatch[]>()
    const reached = new Map<Slot, bigint>()
    let records = 0
    let bytes = 0
    let full = false
    for (let some = true; some && !full; ) {
      some = false
      for (const slot of slots) {
        const item = slot.queue[0]
        if (item === undefined) continue
        const count = slot.nextRecords
        full = records > 0 && (records + count > limits.maxRecords || bytes + item.batch.bytes > limits.maxBytes)
        if (full) break
        records += count
        bytes += item.batch.bytes
        slot.shift()
        const batches = taken.get(slot)
        if (batches === undefined) taken.set(slot, [item.batch])
        else batches.push(item.batch)
        reached.set(slot, item.next)
        some = true
      }
    }
    return this.#reads(slots, taken, reached)
  }

  #reads(
    slots: readonly Slot[],
    taken: ReadonlyMap<Slot, readonly KafkaEncodedBatch[]>,
    reached: ReadonlyMap<Slot, bigint>,
  ): PartitionRead[] {
    const reads: PartitionRead[] = []
    for (const slot of slots) {
      const emptied = slot.queue.length === 0
      const to = emptied ? slot.fetchFrom : reached.get(slot)
      if (to !== undefined && to > slot.given) reads.push(slot.read(taken.get(slot) ?? [], to))
      else if (emptied && slot.error !== undefined) {
        const { stream, topic, partition } = slot.position
        reads.push({ stream, topic, partition, error: slot.error })
        slot.error = undefined
      }
    }
    return reads
  }

  /** The slots, beginning with another each time. */
  #inTurn(): Slot[] {
    const slots = [...this.#slots.values()]
    if (slots.length === 0) return slots
    const first = this.#turn++ % slots.length
    return [...slots.slice(first), ...slots.slice(0, first)]
  }
}

/** Whether what is known of the slot is as new as a request of that number, or will not be newer soon. */
function isFresh(slot: Slot, number: number): boolean {
  if (slot.phase === "failed" || slot.trouble !== undefined) return true
  return slot.phase === "fetching" && slot.answered >= number
}
