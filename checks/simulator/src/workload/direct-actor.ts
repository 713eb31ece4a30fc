import type { OutgoingRecord, Producer, ProducerOptions } from "@millrace/core"
import type { Actor } from "./actor.ts"
import { type CallFact, type Lane, payloadOf } from "./history.ts"
import { routeFor } from "./route.ts"
import type { World } from "./world.ts"

/** A direct producer: single sends, batches of several requests, sends to other topics. */
export class DirectActor implements Actor {
  readonly lane: Lane
  readonly #world: World
  readonly #topic: string
  readonly #producer: Producer
  readonly #kinds: { readonly partitions: boolean; readonly keys: "together" | "spread" }
  readonly #calls: CallFact[] = []

  /** @param mayForgoIdentity Whether the producer may be told to send without an identity. */
  constructor(world: World, topic: string, mayForgoIdentity: boolean) {
    this.#world = world
    this.#topic = topic
    const options = optionsOf(world, mayForgoIdentity)
    this.lane = world.history.addLane("direct", {
      isIdempotent: options.idempotent !== false,
      failsUnknown: options.onUnknown === "fail",
      requestLength: options.batchLength ?? 1000,
    })
    world.trace.note("world", `direct ${this.lane.id} to ${topic}: ${shown(options)}`)
    this.#producer = world.topic(topic).producer(options)
    this.#kinds = { partitions: true, keys: options.partitioner === undefined ? "together" : "spread" }
  }

  step(): void {
    const { chance } = this.#world
    const kind = chance.weighted([
      [6, "send"],
      [3, "batch"],
      [1, "sendTo"],
    ])
    if (kind === "batch") this.#sendBatch()
    else if (kind === "sendTo") this.#sendOne(chance.of(this.#world.topics))
    else this.#sendOne(this.#topic)
  }

  async end(timeoutMs: number): Promise<void> {
    await this.#producer.shutdown({ timeoutMs })
  }

  /** The statistics count what was called and what was confirmed. */
  check(): void {
    const { submittedRecords, confirmedRecords, failedCalls, latency } = this.#producer.statistics
    const done = this.#calls.filter(({ state }) => state === "done")
    const failed = this.#calls.length - done.length
    this.#expect("submittedRecords", submittedRecords, count(this.#calls))
    this.#expect("confirmedRecords", confirmedRecords, count(done))
    this.#expect("failedCalls", failedCalls, failed)
    this.#expect("latency.samples", latency.samples, done.length)
  }

  #expect(what: string, seen: number, right: number): void {
    if (seen === right) return
    this.#world.violate("statistics add up", `${what} of direct ${this.lane.id} is ${seen}, not ${right}`)
  }

  #sendOne(topic: string): void {
    const world = this.#world
    const call = this.#newCall(topic, 1)
    const [record] = call.records
    const payload = payloadOf(record as NonNullable<typeof record>)
    const route = routeFor(world.chance, call.records, this.#kinds)
    const promise =
      topic === this.#topic
        ? this.#producer.send(payload, route)
        : this.#producer.sendTo(world.topic(topic), payload, route)
    world.follow(call, promise)
  }

  #sendBatch(): void {
    const { chance } = this.#world
    const call = this.#newCall(
      this.#topic,
      chance.weighted([
        [6, chance.between(1, 8)],
        [2, chance.between(8, 40)],
      ]),
    )
    const mixed = chance.happens(0.3)
    const records = call.records.map((record): Uint8Array | OutgoingRecord => {
      const payload = payloadOf(record)
      return mixed ? { payload, ...routeFor(chance, [record], this.#kinds) } : payload
    })
    const route = mixed ? undefined : routeFor(chance, call.records, this.#kinds)
    this.#world.follow(call, this.#producer.sendBatch(records, route))
  }

  #newCall(topic: string, records: number): CallFact {
    const { history, nowMs } = this.#world
    const call = history.addCall(
      this.lane,
      { topic, startedMs: nowMs, promises: "confirmed" },
      this.#world.sizes(records),
    )
    this.#calls.push(call)
    return call
  }
}

function optionsOf({ chance }: World, mayForgoIdentity: boolean): ProducerOptions {
  return {
    retries: chance.of([0, 1, 3, 8]),
    retryBackoffMs: chance.of([1, 20, 300]),
    batchLength: chance.of([1, 3, 10, 1000]),
    lingerMs: chance.of([0, 0, 0, 5]),
    partitions: chance.between(1, 3),
    onUnknown: chance.weighted([
      [3, "resend"],
      [1, "fail"],
    ]),
    ...(mayForgoIdentity && chance.happens(0.2) ? { idempotent: false } : {}),
    ...(chance.happens(0.15) ? { partitioner: (_, { payload }, partitions) => (payload?.[3] ?? 0) % partitions } : {}),
  }
}

function count(calls: readonly CallFact[]): number {
  let records = 0
  for (const call of calls) records += call.records.length
  return records
}

function shown(options: ProducerOptions): string {
  return JSON.stringify(options, (_, value: unknown) => (typeof value === "function" ? "a function" : value))
}
