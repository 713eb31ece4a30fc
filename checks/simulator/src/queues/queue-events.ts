import type { FaultyBackend } from "../backend/faulty-backend.ts"
import type { Chance } from "../chance.ts"
import { ReadingEvents } from "../reading/reading-events.ts"
import type { SimClock } from "../sim-clock.ts"
import type { Trace } from "../trace.ts"
import { streamName } from "../workload/world.ts"
import type { QueueDesk } from "./queue-desk.ts"
import type { QueuePlace } from "./queue-program.ts"

/** What others do to the backend, and what befalls it, while programs take from queues. */
export class QueueEvents {
  readonly #others: ReadingEvents
  readonly #backend: FaultyBackend
  readonly #chance: Chance
  readonly #trace: Trace
  readonly #desk: QueueDesk
  readonly #places: readonly QueuePlace[]

  constructor(world: {
    readonly backend: FaultyBackend
    readonly clock: SimClock
    readonly trace: Trace
    readonly chance: Chance
    readonly desk: QueueDesk
    readonly places: readonly QueuePlace[]
  }) {
    this.#others = new ReadingEvents(world)
    this.#backend = world.backend
    this.#chance = world.chance
    this.#trace = world.trace
    this.#desk = world.desk
    this.#places = world.places
  }

  create(topic: string, partitions: number): void {
    this.#others.create(topic, partitions)
  }

  happen(): void {
    const chance = this.#chance
    if (chance.happens(0.2)) this.#deleteQueue(chance.of(this.#places))
    else if (chance.happens(0.3)) this.#restart()
    else this.#others.happen()
  }

  heal(): void {
    this.#others.heal()
  }

  #deleteQueue({ topic, queue }: QueuePlace): void {
    if (this.#backend.queues.find({ stream: streamName, topic }, queue) === undefined) return
    this.#trace.note("backend", `queue ${queue} of ${topic} is deleted`)
    this.#backend.queues.delete({ stream: streamName, topic }, queue)
  }

  #restart(): void {
    this.#trace.note("backend", "is restarted: what was not confirmed is undone")
    this.#desk.crashed()
    this.#backend.restart()
  }
}
