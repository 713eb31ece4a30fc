import { type BackgroundOptions, type Client, type Producer, PublishFailedError, type SendResult } from "@millrace/core"
import type { Clock } from "@millrace/runtime"
import { type CallFact, type FailureFact, type FlushFact, type Lane, numberIn, payloadOf } from "./history.ts"
import { routeFor } from "./route.ts"
import { describeError, streamName, type World } from "./world.ts"

/** What a program with a spool does with failures. */
export type SpoolHandling = "none" | "take" | "throw" | "wait"

/** A program's settings: the same in each of its lives. */
export interface SpoolProgram {
  readonly lane: Lane
  readonly handling: SpoolHandling
  readonly partitions: number
  readonly background: BackgroundOptions
  /** Of the spool, in bytes; infinite where the default holds. */
  readonly maxSpoolBytes: number
}

/** One life of a program with a spool: every way to send, failures heard in every way, flushes in the midst. */
export class SpoolActor {
  readonly calls: CallFact[] = []
  readonly failures: FailureFact[] = []
  readonly flushes: FlushFact[] = []
  readonly producer: Producer
  readonly #world: World
  readonly #program: SpoolProgram
  readonly #client: Client
  readonly #clock: Clock
  /** What a callback takes after that is written down nowhere. */
  #isEnded = false

  /** @param process What the life runs in. */
  constructor(
    world: World,
    program: SpoolProgram,
    { client, clock }: { readonly client: Client; readonly clock: Clock },
  ) {
    this.#clock = clock
    this.#world = world
    this.#program = program
    this.#client = client
    const onError = (error: PublishFailedError): void | Promise<void> => this.#onError(error)
    this.producer = client
      .stream(streamName)
      .topic(world.topics[0] as string)
      .producer({
        partitions: program.partitions,
        background: { ...program.background, ...(program.handling === "none" ? {} : { onError }) },
      })
  }

  /** One or some calls. */
  step(): void {
    const { chance, topics } = this.#world
    const kind = chance.weighted([
      [8, "send"],
      [3, "batch"],
      [2, "sendTo"],
      [2, "confirm"],
      [1, "enqueue"],
      [1, "flush"],
    ])
    if (kind === "flush") void this.flush()
    else if (kind === "batch") this.#sendBatch(chance.between(1, 12))
    else if (kind === "confirm") this.sendAndConfirm()
    else if (kind === "enqueue") this.#enqueue()
    else if (kind === "sendTo") this.#send(chance.of(topics))
    else for (let i = chance.of([1, 1, 3, 10]); i > 0; i--) this.#send(topics[0] as string)
    this.#checkDepth()
  }

  open(): Promise<void> {
    return this.producer.init()
  }

  flush(): Promise<void> {
    const { history, clock, trace } = this.#world
    const flush: FlushFact = {
      lane: this.#program.lane,
      before: history.calls.length,
      endedMs: Number.NaN,
      isCut: false,
    }
    history.flushes.push(flush)
    this.flushes.push(flush)
    return this.producer.flush().then(
      () => {
        flush.endedMs = clock.monotonicMs()
        trace.note("client", "the spool is flushed")
      },
      (error: unknown) => {
        flush.isCut = true
        trace.note("client", `a flush of the spool failed: ${describeError(error)}`)
      },
    )
  }

  /** @returns whether the shutdown found everything delivered or handed over */
  async shutdown(timeoutMs: number): Promise<boolean> {
    const { trace } = this.#world
    try {
      await this.producer.shutdown({ timeoutMs })
      return true
    } catch (error) {
      trace.note("client", `the spool was shut down: ${describeError(error)}`)
      if (error instanceof PublishFailedError) this.#heard(error)
      return false
    } finally {
      this.#isEnded = true
    }
  }

  /**
   * The process is gone. What was under way is known to nobody; what was told of a record may not be written down yet, so that the next
   * life may tell it again, or deliver it.
   */
  cut(): void {
    for (const call of this.calls) {
      call.isCut ||= call.state === "open"
      if (call.error instanceof PublishFailedError) call.isCut = true
    }
    for (const flush of this.flushes) flush.isCut ||= Number.isNaN(flush.endedMs)
    for (const failure of this.failures) failure.mayReturn = true
  }

  /** The life has ended in order. */
  end(): void {
    for (const flush of this.flushes) flush.isCut ||= Number.isNaN(flush.endedMs)
  }

  #send(topic: string): void {
    const world = this.#world
    const call = this.#newCall(topic, 1, "accepted")
    const payload = payloadOf(call.records[0] as CallFact["records"][number])
    const route = routeFor(world.chance, call.records)
    const promise =
      topic === world.topics[0]
        ? this.producer.send(payload, route)
        : this.producer.sendTo(this.#client.stream(streamName).topic(topic), payload, route)
    world.follow(call, promise)
  }

  #sendBatch(records: number): void {
    const world = this.#world
    const call = this.#newCall(world.topics[0] as string, records, "accepted")
    world.follow(call, this.producer.sendBatch(call.records.map(payloadOf), routeFor(world.chance, call.records)))
  }

  /** One record, of whose delivery the program waits to hear. */
  sendAndConfirm(): void {
    const world = this.#world
    const topic = world.topics[0] as string
    const call = this.#newCall(topic, 1, "confirmed")
    const payload = payloadOf(call.records[0] as CallFact["records"][number])
    const delivered = this.producer.sendAndConfirm(payload, routeFor(world.chance, call.records))
    world.follow(
      call,
      delivered.then((delivery) => resultOf(topic, delivery)),
    )
  }

  #enqueue(): void {
    const world = this.#world
    const topic = world.topics[0] as string
    const call = this.#newCall(topic, 1, "confirmed")
    call.hasHandle = true
    const payload = payloadOf(call.records[0] as CallFact["records"][number])
    const delivered = this.producer.enqueue({ payload, ...routeFor(world.chance, call.records) })
    world.follow(
      call,
      delivered.then(({ delivery }) => delivery).then((delivery) => resultOf(topic, delivery)),
    )
  }

  #onError(error: PublishFailedError): void | Promise<void> {
    const { chance, trace } = this.#world
    const { handling } = this.#program
    const does = handling === "throw" && chance.happens(0.5) ? "take" : handling
    trace.note("client", `the spool's onError (${does}): ${describeError(error)}`)
    for (const { payload } of error.unconfirmed) this.#refused(payload)
    if (does === "throw") throw new Error("onError fails")
    if (does !== "wait") {
      this.#heard(error)
      return
    }
    return new Promise((resolve) => {
      this.#clock.setTimer(chance.between(0, 200), () => {
        this.#heard(error)
        resolve()
      })
    })
  }

  #heard(error: PublishFailedError): void {
    const { history, nowMs } = this.#world
    const failure: FailureFact = { lane: this.#program.lane, error, atMs: nowMs, mayReturn: this.#isEnded }
    history.failures.push(failure)
    this.failures.push(failure)
    for (const { payload } of error.unconfirmed) this.#refused(payload)
  }

  #refused(payload: Uint8Array | null): void {
    const record = this.#world.history.records[numberIn(payload)]
    if (record !== undefined) record.isRefused = true
  }

  #checkDepth(): void {
    const bytes = this.producer.spool?.depth().bytes ?? 0
    const { maxSpoolBytes } = this.#program
    if (bytes <= maxSpoolBytes) return
    this.#world.violate("buffers are bounded", `the spool holds ${bytes} bytes; ${maxSpoolBytes} may be held`)
  }

  #newCall(topic: string, records: number, promises: CallFact["promises"]): CallFact {
    const { history, nowMs } = this.#world
    const call = history.addCall(this.#program.lane, { topic, startedMs: nowMs, promises }, this.#world.sizes(records))
    this.calls.push(call)
    return call
  }
}

function resultOf(
  topic: string,
  { partition, offset }: { readonly partition: number; readonly offset?: bigint },
): SendResult {
  if (offset === undefined) return { confirmations: [] }
  return { confirmations: [{ stream: streamName, topic, partition, baseOffset: offset, count: 1 }] }
}
