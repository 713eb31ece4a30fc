import type { FaultyBackend } from "../backend/faulty-backend.ts"
import type { SimTopic } from "../backend/sim-topic.ts"
import type { Chance } from "../chance.ts"
import { ReadingEvents } from "../reading/reading-events.ts"
import { numberIn } from "../record-number.ts"
import type { SimClock } from "../sim-clock.ts"
import type { Trace } from "../trace.ts"
import type { TransactionDesk } from "./transaction-desk.ts"

/** What others do to the backend, and what befalls it, while programs work in transactions. */
export class TransactionEvents {
  readonly #others: ReadingEvents
  readonly #backend: FaultyBackend
  readonly #chance: Chance
  readonly #trace: Trace

  constructor(world: {
    readonly backend: FaultyBackend
    readonly clock: SimClock
    readonly trace: Trace
    readonly chance: Chance
    readonly desk: TransactionDesk
  }) {
    this.#others = new ReadingEvents(world)
    this.#backend = world.backend
    this.#chance = world.chance
    this.#trace = world.trace
  }

  create(topic: string, partitions: number): void {
    this.#others.create(topic, partitions)
  }

  happen(): void {
    const chance = this.#chance
    const ids = this.#backend.coordination.transactionalIds
    if (chance.happens(0.3)) {
      this.#trace.note("backend", "is restarted: open transactions are aborted")
      this.#backend.restart()
    } else if (ids.length > 0 && chance.happens(0.2)) {
      const id = chance.of(ids)
      this.#trace.note("backend", `somebody else begins a new incarnation of ${id}`)
      this.#backend.coordination.fence(id)
    } else this.#others.happen()
  }

  /** The last records of a partition are none: markers, or what compaction has taken. */
  blot({ logs, description }: SimTopic, partition: number, count: number): void {
    const log = logs[partition]
    if (log === undefined) return
    const end = log.records.length
    for (let offset = end - count; offset < end; offset++) log.hidden.add(offset)
    this.#trace.note("backend", `${description.topic}/${partition} has no records from ${end - count} to ${end - 1}`)
  }

  heal(): void {
    this.#others.heal()
  }

  /** How many records of each number a topic has had in all of its histories; without those that have none. */
  countsIn(topic: string): Map<number, number> {
    const counts = new Map<number, number>()
    for (const history of this.#backend.histories) {
      if (history.topic !== topic) continue
      for (const { payload } of history.log.records) {
        if (payload === null) continue
        const number = numberIn(payload)
        counts.set(number, (counts.get(number) ?? 0) + 1)
      }
    }
    return counts
  }
}
