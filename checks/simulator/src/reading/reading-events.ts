import type { TopicSpec } from "@millrace/contract"
import type { FaultyBackend } from "../backend/faulty-backend.ts"
import type { SimTopic } from "../backend/sim-topic.ts"
import type { Chance } from "../chance.ts"
import type { SimClock } from "../sim-clock.ts"
import type { Trace } from "../trace.ts"
import { streamName } from "../workload/world.ts"

const spec: Omit<TopicSpec, "partitions"> = {
  durability: "synced",
  offsetDurability: "synced",
  deduplicationWindowMs: 120_000,
  deduplicateIds: false,
}

/** What others do to the backend, and what befalls it, while programs read. */
export class ReadingEvents {
  readonly #backend: FaultyBackend
  readonly #clock: SimClock
  readonly #chance: Chance
  readonly #trace: Trace

  constructor(world: {
    readonly backend: FaultyBackend
    readonly clock: SimClock
    readonly chance: Chance
    readonly trace: Trace
  }) {
    this.#backend = world.backend
    this.#clock = world.clock
    this.#chance = world.chance
    this.#trace = world.trace
  }

  create(topic: string, partitions: number): void {
    if (!this.#backend.streams.includes(streamName)) this.#backend.createStream(streamName)
    this.#backend.createTopic({ stream: streamName, topic }, { ...spec, partitions })
  }

  happen(): void {
    const topic = this.#chance.of(this.#backend.topics)
    if (topic === undefined) return
    const chance = this.#chance
    const event = chance.weighted<() => void>([
      [4, () => this.#outage(chance.between(1, 3000))],
      [1, () => this.#outage(chance.between(5000, 60_000))],
      [3, () => this.#trim(topic)],
      [this.#backend.manifest.read.holes ? 4 : 0, () => this.#hide(topic)],
      [2, () => this.#sicken(topic)],
      [1, () => this.#grow(topic)],
      [3, () => this.#purge(topic)],
      [3, () => this.#replace(topic, chance.of([0, chance.between(1, 5000)]))],
      [2, () => this.#jump(chance.between(-7_200_000, 7_200_000))],
    ])
    event()
    this.#backend.changed()
  }

  /** Everything is well again. */
  heal(): void {
    for (const topic of this.#backend.topics) for (const log of topic.logs) log.sickness = undefined
    this.#backend.restore()
    this.#backend.changed()
  }

  #outage(ms: number): void {
    if (this.#backend.isDown) return
    this.#note(`the backend is down for ${ms} ms`)
    this.#backend.cut()
    this.#clock.setTimer(ms, () => {
      this.#note("the backend is up")
      this.#backend.restore()
    })
  }

  #trim(topic: SimTopic): void {
    const partition = this.#chance.below(topic.logs.length)
    const log = topic.logs[partition]
    if (log === undefined) return
    log.trim(this.#chance.between(log.first, log.records.length))
    this.#note(`${topic.description.topic}/${partition} begins at ${log.first} now`)
  }

  /** What compaction does: records go, offsets stay. */
  #hide(topic: SimTopic): void {
    const partition = this.#chance.below(topic.logs.length)
    const log = topic.logs[partition]
    if (log === undefined || log.records.length === 0) return
    const from = this.#chance.below(log.records.length)
    const to = Math.min(log.records.length - 1, from + this.#chance.below(12))
    for (let offset = from; offset <= to; offset++) log.hidden.add(offset)
    this.#note(`${topic.description.topic}/${partition} has a hole from ${from} to ${to}`)
  }

  /** One bad partition among good ones. */
  #sicken(topic: SimTopic): void {
    const partition = this.#chance.below(topic.logs.length)
    const log = topic.logs[partition]
    if (log === undefined) return
    const kind = this.#chance.of(["corruption", "not-leader"] as const)
    log.sickness = kind
    this.#note(`${topic.description.topic}/${partition} cannot be read: ${kind}`)
    this.#clock.setTimer(this.#chance.between(1, 10_000), () => {
      log.sickness = undefined
    })
  }

  #grow(topic: SimTopic): void {
    if (topic.logs.length > 5) return
    topic.grow(1)
    this.#note(`${topic.description.topic} gets another partition`)
  }

  #purge(topic: SimTopic): void {
    topic.purge()
    this.#note(`${topic.description.topic} is purged`)
  }

  #replace(topic: SimTopic, afterMs: number): void {
    const { description } = topic
    const partitions = description.partitions.length
    this.#note(`${description.topic} is deleted, and made again after ${afterMs} ms`)
    this.#backend.deleteTopic(description)
    const create = (): void => {
      if (this.#backend.find(description) === undefined) this.create(description.topic, partitions)
    }
    if (afterMs === 0) create()
    else this.#clock.setTimer(afterMs, create)
  }

  #jump(ms: number): void {
    this.#note(`the wall clock jumps by ${ms} ms`)
    this.#clock.jumpWall(ms)
  }

  #note(text: string): void {
    this.#trace.note("backend", text)
  }
}
