import type { Actor } from "./actor.ts"
import { type CallFact, type Lane, payloadOf, type RecordFact } from "./history.ts"
import { resendSomething } from "./resend.ts"
import { routeFor } from "./route.ts"
import type { World } from "./world.ts"

/** What a client sends without a producer of its own: `publish()`, `publishBatch()`, and `topic.batch()` after a failure. */
export class ClientActor implements Actor {
  readonly lane: Lane
  readonly #world: World

  constructor(world: World) {
    this.#world = world
    this.lane = world.history.addLane("client")
  }

  step(): void {
    const { chance, topics } = this.#world
    const kind = chance.weighted([
      [3, "publish"],
      [2, "publishBatch"],
      [3, "resend"],
    ])
    if (kind === "resend" && resendSomething(this.#world, this.lane)) return
    if (kind === "publishBatch") this.#publishBatch(chance.of(topics))
    else this.#publish(chance.of(topics))
  }

  /** It ends with its client. */
  async end(): Promise<void> {}

  #publish(topic: string): void {
    const call = this.#newCall(topic, 1)
    const { key, partition } = routeFor(this.#world.chance, call.records)
    let builder = this.#world.topic(topic).publish()
    builder = builder.payload(payloadOf(call.records[0] as RecordFact))
    if (key !== undefined) builder = builder.key(key)
    if (partition !== undefined) builder = builder.partition(partition)
    this.#world.follow(call, builder.send())
  }

  #publishBatch(topic: string): void {
    const call = this.#newCall(topic, this.#world.chance.between(1, 12))
    const builder = this.#world.topic(topic).publishBatch()
    for (const record of call.records) builder.add(payloadOf(record))
    this.#world.follow(call, builder.send())
  }

  #newCall(topic: string, records: number): CallFact {
    const world = this.#world
    const to = { topic, startedMs: world.nowMs, promises: "confirmed" } as const
    return world.history.addCall(this.lane, to, world.sizes(records))
  }
}
