import type { TopicSpec } from "@millrace/contract"
import { streamName, type World } from "./world.ts"

const spec: Omit<TopicSpec, "partitions"> = {
  durability: "synced",
  offsetDurability: "synced",
  deduplicationWindowMs: 120_000,
  deduplicateIds: false,
}

/** What others do to the backend, and what befalls it, while the program sends. */
export class BackendEvents {
  readonly #world: World

  constructor(world: World) {
    this.#world = world
  }

  /** One event. @param kinds Whether the wall clock may be set; default true. */
  happen({ jumps }: { readonly jumps: boolean } = { jumps: true }): void {
    const { chance, clock, backend } = this.#world
    const event = chance.weighted<() => void>([
      [5, () => this.#outage(chance.between(1, 2000))],
      [1, () => this.#outage(chance.between(10_000, 200_000))],
      [2, () => this.#replace(0)],
      [1, () => this.#replace(chance.between(1, 30_000))],
      [2, () => this.#grow()],
      [1, () => this.#purge()],
      [2, () => this.#forget()],
      [1, () => this.#fence()],
      [jumps ? 3 : 0, () => this.#jump(chance.between(-7_200_000, 7_200_000))],
    ])
    if (backend.isDown && clock.timers === 0) this.#restore()
    event()
  }

  /** One outage, seconds or minutes long. */
  outage(): void {
    const { chance } = this.#world
    this.#outage(chance.of([chance.between(1, 2000), chance.between(1000, 300_000)]))
  }

  /** Makes a topic, unless it is left to the first producer that uses it. */
  create(topic: string, partitions: number): void {
    const { backend } = this.#world
    if (!backend.streams.includes(streamName)) backend.createStream(streamName)
    backend.createTopic({ stream: streamName, topic }, { ...spec, partitions })
  }

  #outage(ms: number): void {
    const { backend, clock } = this.#world
    if (backend.isDown) return
    this.#note(`the backend is down for ${ms} ms`)
    backend.cut()
    clock.setTimer(ms, () => this.#restore())
  }

  #restore(): void {
    this.#note("the backend is up")
    this.#world.backend.restore()
  }

  /** Deletes a topic; it comes back after a while, perhaps with another number of partitions. */
  #replace(afterMs: number): void {
    const { chance, backend, clock } = this.#world
    const topic = this.#some()
    if (topic === undefined) return
    const { description } = topic
    const partitions = chance.happens(0.5) ? description.partitions.length : chance.between(1, 4)
    this.#note(
      `topic ${description.topic} is deleted, and made again with ${partitions} partitions after ${afterMs} ms`,
    )
    backend.deleteTopic(description)
    const create = (): void => {
      const isThere = backend.topics.some((other) => other.description.topic === description.topic)
      if (!isThere) backend.createTopic(description, { ...spec, partitions })
    }
    if (afterMs === 0) create()
    else clock.setTimer(afterMs, create)
  }

  #grow(): void {
    const topic = this.#some()
    if (topic === undefined || topic.logs.length > 5) return
    this.#note(`topic ${topic.description.topic} gets another partition`)
    topic.grow(1)
  }

  #purge(): void {
    const topic = this.#some()
    if (topic === undefined) return
    this.#note(`topic ${topic.description.topic} is purged`)
    topic.purge()
  }

  #forget(): void {
    this.#note("the backend forgets its producers")
    this.#world.backend.forgetProducers()
  }

  #fence(): void {
    const { backend, chance } = this.#world
    const { identities } = backend.producers
    if (identities.length === 0) return
    const producerId = chance.of(identities)
    this.#note(`somebody goes on under producer ${producerId}`)
    backend.producers.fence(producerId)
  }

  #jump(ms: number): void {
    this.#note(`the wall clock jumps by ${ms} ms`)
    this.#world.clock.jumpWall(ms)
  }

  #some(): World["backend"]["topics"][number] | undefined {
    const { backend, chance } = this.#world
    return backend.topics.length === 0 ? undefined : chance.of(backend.topics)
  }

  #note(text: string): void {
    this.#world.trace.note("backend", text)
  }
}
