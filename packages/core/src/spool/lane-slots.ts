import type { TopicName } from "@millrace/contract"
import { topicKey } from "../client/names.ts"
import type { SpoolLane } from "./lane.ts"

interface Waiter {
  readonly enter: (lane: SpoolLane) => void
  readonly refuse: (error: unknown) => void
}

/** A topic as a producer knows it: its lane, or who waits for that, in the order of the calls. */
interface Slot {
  lane: SpoolLane | undefined
  /** Settles when nobody waits for the lane any more. */
  filled: Promise<void>
  readonly waiting: Waiter[]
}

/** The lanes of a producer, each brought at the first send to its topic; sends wait for theirs in order. */
export class LaneSlots {
  readonly #bring: (name: TopicName) => Promise<SpoolLane>
  readonly #slots = new Map<string, Slot>()
  #lastName: TopicName | undefined
  #lastSlot: Slot | undefined

  /** @param bring Opens or makes the lane of a topic. */
  constructor(bring: (name: TopicName) => Promise<SpoolLane>) {
    this.#bring = bring
  }

  /** The lane, when a send may go into it at once. */
  ready(name: TopicName): SpoolLane | undefined {
    const slot = this.#slot(name)
    return slot.waiting.length === 0 ? slot.lane : undefined
  }

  /** Runs the work in its turn, when the lane is there. @throws what keeps it from being brought, and what the work throws */
  whenReady<T>(name: TopicName, work: (lane: SpoolLane) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const enter = (lane: SpoolLane): void => {
        work(lane).then(resolve, reject)
      }
      this.#slot(name).waiting.push({ enter, refuse: reject })
    })
  }

  /** Settles when nobody who waits now waits any more. */
  async entered(): Promise<void> {
    await Promise.all([...this.#slots.values()].map(({ filled }) => filled))
  }

  /** Sends those who wait away. */
  refuse(error: unknown): void {
    for (const { waiting } of this.#slots.values()) for (const waiter of waiting.splice(0)) waiter.refuse(error)
  }

  /** Names are compared by identity first: most sends go where the last one went. */
  #slot(name: TopicName): Slot {
    if (name === this.#lastName && this.#lastSlot !== undefined) return this.#lastSlot
    const slot = this.#find(name)
    this.#lastName = name
    this.#lastSlot = slot
    return slot
  }

  #find(name: TopicName): Slot {
    const key = topicKey(name)
    let slot = this.#slots.get(key)
    if (slot === undefined) {
      slot = { lane: undefined, waiting: [], filled: Promise.resolve() }
      this.#slots.set(key, slot)
      slot.filled = this.#fill(slot, { stream: name.stream, topic: name.topic })
    }
    return slot
  }

  /** Never rejects: those who wait for the lane hear of a failure, and the next send tries again. */
  async #fill(slot: Slot, name: TopicName): Promise<void> {
    try {
      slot.lane = await this.#bring(name)
      for (const { enter } of slot.waiting.splice(0)) enter(slot.lane)
    } catch (error) {
      this.#slots.delete(topicKey(name))
      this.#lastSlot = undefined
      for (const { refuse } of slot.waiting.splice(0)) refuse(error)
    }
  }
}
