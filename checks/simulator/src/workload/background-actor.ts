import {
  type BackgroundOptions,
  type Delivery,
  type Producer,
  type ProducerOptions,
  PublishFailedError,
  type SendResult,
} from "@millrace/core"
import type { Actor } from "./actor.ts"
import { type CallFact, type FlushFact, type Lane, numberIn, payloadOf, type RecordFact } from "./history.ts"
import { routeFor } from "./route.ts"
import { describeError, streamName, type World } from "./world.ts"

/** What a program does with failures. */
type Handling = "none" | "take" | "throw" | "wait" | "resend"

/** A background producer: sends that are accepted and forgotten, some with a delivery, flushes in the midst, every way to hear of failures. */
export class BackgroundActor implements Actor {
  readonly lane: Lane
  readonly #world: World
  readonly #topic: string
  readonly #producer: Producer
  readonly #handling: Handling
  /** Of the records of one send, in bytes; small against the buffer, or not. */
  readonly #largestPayload: number
  #resends = 0
  #ending: Promise<void> | undefined

  constructor(world: World, topic: string) {
    this.#world = world
    this.#topic = topic
    const { chance } = world
    this.#handling = chance.weighted<Handling>([
      [3, "none"],
      [3, "take"],
      [1, "throw"],
      [2, "wait"],
      [1, "resend"],
    ])
    const background = backgroundOptions(world)
    this.#largestPayload = background.maxBufferBytes === undefined ? 40 : 300
    const shards = background.sharding === "ordered" ? 1 : background.shards
    const options: ProducerOptions = {
      retries: chance.of([0, 1, 3, 8]),
      retryBackoffMs: chance.of([1, 20, 300]),
      partitions: chance.between(1, 3),
      ...(chance.happens(0.4) ? { onUnknown: chance.of(["resend", "fail"]) } : {}),
      background: {
        ...background,
        ...(this.#handling === "none" ? {} : { onError: (error) => this.#onError(error) }),
      },
    }
    const failsUnknown = options.onUnknown === "fail"
    this.lane = world.history.addLane("background", { isOrdered: shards === 1, shards, failsUnknown })
    world.budgets.set(this.lane.id, background.maxBufferBytes ?? 32 << 20)
    world.trace.note("world", `background ${this.lane.id} to ${topic}: ${this.#handling} ${JSON.stringify(options)}`)
    this.#producer = world.topic(topic).producer(options)
  }

  step(): void {
    const { chance, topics } = this.#world
    const kind = chance.weighted([
      [8, "send"],
      [2, "batch"],
      [1, "sendTo"],
      [2, "confirm"],
      [1, "enqueue"],
      [1, "flush"],
    ])
    if (kind === "flush") this.#flush()
    else if (kind === "batch") this.#sendBatch(chance.between(1, 10))
    else if (kind === "confirm") this.#sendAndConfirm()
    else if (kind === "enqueue") this.#enqueue()
    else if (kind === "sendTo") this.#send(chance.of(topics))
    // Sends come in groups, as those of a busy program do.
    else for (let i = chance.of([1, 1, 3, 12]); i > 0; i--) this.#send(this.#topic)
  }

  end(timeoutMs: number): Promise<void> {
    this.#ending ??= this.#shutdown(timeoutMs)
    return this.#ending
  }

  async #shutdown(timeoutMs: number): Promise<void> {
    try {
      await this.#producer.shutdown({ timeoutMs })
    } catch (error) {
      if (error instanceof PublishFailedError) this.#heard(error)
      throw error
    }
  }

  check(): void {
    const { submittedRecords, confirmedRecords } = this.#producer.statistics
    if (confirmedRecords <= submittedRecords) return
    const text = `background ${this.lane.id} has confirmed ${confirmedRecords} records of ${submittedRecords}`
    this.#world.violate("statistics add up", text)
  }

  #send(topic: string): void {
    const world = this.#world
    const call = this.#newCall(topic, 1, "accepted")
    const payload = payloadOf(call.records[0] as RecordFact)
    const route = routeFor(world.chance, call.records)
    const promise =
      topic === this.#topic
        ? this.#producer.send(payload, route)
        : this.#producer.sendTo(world.topic(topic), payload, route)
    // The bytes are the producer's only until it has accepted them.
    world.follow(
      call,
      promise.finally(() => payload.fill(0xff)),
    )
  }

  #sendBatch(records: number): void {
    const call = this.#newCall(this.#topic, records, "accepted")
    const payloads = call.records.map(payloadOf)
    this.#world.follow(call, this.#producer.sendBatch(payloads, routeFor(this.#world.chance, call.records)))
  }

  #sendAndConfirm(): void {
    const call = this.#newCall(this.#topic, 1, "confirmed")
    const promise = this.#producer.sendAndConfirm(
      payloadOf(call.records[0] as RecordFact),
      routeFor(this.#world.chance, call.records),
    )
    this.#world.follow(
      call,
      promise.then((delivery) => this.#resultOf(delivery)),
    )
  }

  #enqueue(): void {
    const call = this.#newCall(this.#topic, 1, "confirmed")
    call.hasHandle = true
    const record = { payload: payloadOf(call.records[0] as RecordFact), ...routeFor(this.#world.chance, call.records) }
    const delivered = this.#producer.enqueue(record).then(({ delivery }) => delivery)
    this.#world.follow(
      call,
      delivered.then((delivery) => this.#resultOf(delivery)),
    )
  }

  #resultOf({ partition, offset }: Delivery): SendResult {
    if (offset === undefined) return { confirmations: [] }
    return { confirmations: [{ stream: streamName, topic: this.#topic, partition, baseOffset: offset, count: 1 }] }
  }

  #flush(): void {
    const { history, clock, trace } = this.#world
    const flush: FlushFact = { lane: this.lane, before: history.calls.length, endedMs: Number.NaN, isCut: false }
    history.flushes.push(flush)
    this.#producer.flush().then(
      () => {
        flush.endedMs = clock.monotonicMs()
        trace.note("client", `background ${this.lane.id} flushed`)
      },
      (error: unknown) => this.#world.violate("typed errors", `flush failed: ${String(error)}`),
    )
  }

  #onError(error: PublishFailedError): void | Promise<void> {
    const { chance, trace, clock } = this.#world
    const does = this.#handling === "throw" && chance.happens(0.5) ? "take" : this.#handling
    trace.note("client", `background ${this.lane.id} onError (${does}): ${describeError(error)}`)
    if (does === "throw") throw new Error("onError fails")
    this.#heard(error)
    if (does === "resend") this.#resend(error)
    if (does !== "wait") return
    return new Promise((resolve) => void clock.setTimer(chance.between(0, 200), resolve))
  }

  /** A send in onError, as new records. Bounded, since what fails for good fails again. */
  #resend({ unconfirmed }: PublishFailedError): void {
    const { history, nowMs } = this.#world
    for (const { payload } of unconfirmed) {
      const record = history.records[numberIn(payload)] as RecordFact
      if (this.#resends >= 20 || record.resend !== undefined) continue
      this.#resends++
      const to = { topic: this.#topic, startedMs: nowMs, promises: "accepted", keepsIds: false } as const
      const call = history.addResend(this.lane, to, [record])
      this.#world.follow(call, this.#producer.send(payloadOf(record)))
    }
  }

  #heard(error: PublishFailedError): void {
    this.#world.history.failures.push({ lane: this.lane, error, atMs: this.#world.nowMs, mayReturn: false })
  }

  #newCall(topic: string, records: number, promises: CallFact["promises"]): CallFact {
    const { history, nowMs, chance } = this.#world
    const sizes = this.#world.sizes(records).map((size) => (size > 40 ? size : chance.between(4, this.#largestPayload)))
    return history.addCall(this.lane, { topic, startedMs: nowMs, promises }, sizes)
  }
}

function backgroundOptions({ chance }: World): BackgroundOptions & { readonly shards: number } {
  const failureMode = chance.of(["block", "block", "blockWithTimeout", "failImmediately"] as const)
  return {
    shards: chance.of([1, 1, 3]),
    sharding: chance.of(["ordered", "ordered", "balanced"]),
    batchLength: chance.of([1, 4, 1000]),
    batchBytes: chance.of([200, 1 << 20]),
    lingerMs: chance.of([0, 1, 20, 500]),
    maxInFlight: chance.of([0, 1, 5]),
    failureMode,
    ...(failureMode === "blockWithTimeout" ? { blockTimeoutMs: chance.of([1, 100, 5000]) } : {}),
    ...(chance.happens(0.5) ? { maxBufferBytes: chance.of([700, 2000, 12_000]) } : {}),
  }
}
