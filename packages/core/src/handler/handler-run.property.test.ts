import assert from "node:assert/strict"
import { test } from "node:test"
import { CorruptionError, type MillraceError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import fc from "fast-check"
import type { Message } from "../record/message.ts"
import type { FakeLane } from "./fake-feed.test-support.ts"
import type { HandlerContext } from "./handler-context.ts"
import { HandlerRig } from "./handler-rig.test-support.ts"
import type { HandlerOrder } from "./run-options.ts"

/**
 * Random handlers (sync and async, slow and failing), batches that cannot be read, partitions that are lost, drained and paused, and an end
 * of some kind, on a virtual clock. What has to hold is checked at every step.
 */
interface Plan {
  readonly seed: number
  readonly order: HandlerOrder
  readonly concurrency: number
  readonly maxAhead: number
  readonly attempts: number
  readonly onFailure: "stop" | "skip"
  readonly partitions: number
  readonly failing: number
  readonly end: "shutdown" | "stop" | "signal"
}

const plans: fc.Arbitrary<Plan> = fc.record({
  seed: fc.nat(1_000_000),
  order: fc.constantFrom("partition", "key", "none"),
  concurrency: fc.integer({ min: 1, max: 12 }),
  maxAhead: fc.integer({ min: 1, max: 40 }),
  attempts: fc.integer({ min: 1, max: 3 }),
  onFailure: fc.constantFrom("stop", "skip"),
  partitions: fc.integer({ min: 1, max: 4 }),
  failing: fc.constantFrom(0, 5, 30),
  end: fc.constantFrom("shutdown", "stop", "signal"),
})

const utf8 = new TextDecoder()

test("whatever handlers do and partitions undergo: order, bounds, the handled prefix, and a clean end", async () => {
  await fc.assert(
    fc.asyncProperty(plans, async (plan) => await new Trial(plan).run()),
    { numRuns: Number(process.env.MILLRACE_LONG) > 0 ? 5000 : 150 },
  )
})

class Trial {
  readonly #plan: Plan
  readonly #random: () => number
  readonly #rig: HandlerRig
  readonly #cancel = new AbortController()
  /** What runs: by lane object and, where that is ordered, key. */
  readonly #busy = new Map<FakeLane, Map<string, number>>()
  /** The offset that started last, by lane and key. */
  readonly #last = new Map<FakeLane, Map<string, bigint>>()
  /** Settled well, by lane. */
  readonly #well = new Map<FakeLane, Set<bigint>>()
  readonly #gaveUp = new Map<FakeLane, Set<bigint>>()
  /** Batches that cannot be read and were dealt with. */
  readonly #passed = new Set<unknown>()
  #running = 0
  #wrong: unknown
  #put = 0

  constructor(plan: Plan) {
    this.#plan = plan
    const random = seededRandom(plan.seed)
    this.#random = () => random.uint32() / 2 ** 32
    const { order, concurrency, maxAhead, attempts, onFailure, partitions } = plan
    this.#rig = new HandlerRig(
      {
        order,
        concurrency,
        maxAhead,
        partitions,
        onFailure,
        retry: { attempts, backoffMs: 20 },
        drainTimeoutMs: 10_000,
        signal: this.#cancel.signal,
        onError: (error, next) => {
          if (next !== "skip" || this.#passes(error)) return
          const lane = this.#rig.feed.lanes[error.context.partition as number] as FakeLane
          setOf(this.#gaveUp, lane).add(error.context.offset as bigint)
        },
      },
      (message, context) => this.#handle(message, context),
    )
    this.#rig.feed.whileSkipping = () =>
      new Promise((resolve) => void this.#rig.clock.setTimer(this.#upTo(60), resolve))
  }

  /** Whether the error is of a batch: it comes when everything before it is handled, and once. */
  #passes(error: MillraceError): boolean {
    const { partition, before } = error.context
    if (before === undefined) return false
    const lane = this.#rig.feed.lanes[partition as number] as FakeLane
    try {
      assert.equal(lane.handled.prefix, before, "what came before it is not handled")
      assert.equal(this.#passed.has(error), false, "it was dealt with before")
    } catch (wrong) {
      this.#wrong ??= wrong
    }
    this.#passed.add(error)
    return true
  }

  #damage(lane: FakeLane): void {
    lane.left.push(new CorruptionError("damaged", { context: { ...lane.partition, before: lane.end } }))
    this.#rig.run.ready()
  }

  async run(): Promise<void> {
    this.#fill(40)
    this.#rig.begin()
    for (let step = 0; step < 30 && this.#rig.outcome === undefined; step++) {
      this.#disturb()
      await this.#rig.clock.advance(this.#upTo(40))
      this.#check()
    }
    await this.#finish()
  }

  #disturb(): void {
    const { feed, run } = this.#rig
    const chance = this.#random()
    const partition = this.#upTo(this.#plan.partitions)
    const lane = feed.lanes[partition] as FakeLane
    if (chance < 0.1) feed.lose(partition)
    else if (chance < 0.2) lane.paused = true
    else if (chance < 0.35) for (let p = 0; p < this.#plan.partitions; p++) feed.resume(p)
    else if (chance < 0.4) {
      lane.draining = true
      const drained = run.draining(lane)
      const lose = (): void => {
        if (feed.lanes[partition] === lane) feed.lose(partition)
      }
      void drained.then(lose)
    } else if (chance < 0.5) this.#damage(lane)
    else if (chance < 0.8) this.#fill(10)
    if (this.#random() < 0.4) for (let p = 0; p < this.#plan.partitions; p++) feed.meetAgain(p)
  }

  #fill(count: number): void {
    for (let n = 0; n < count; n++) {
      const key = this.#random() < 0.2 ? undefined : String.fromCharCode(97 + this.#upTo(4))
      const partition = this.#upTo(this.#plan.partitions)
      this.#rig.feed.put(partition, { text: `${this.#put++}`, ...(key === undefined ? {} : { key }) })
    }
  }

  /** What a handler finds wrong must not pass for a failure of the handler. */
  #handle(message: Message, context: HandlerContext): unknown {
    try {
      this.#checkStart(message, context)
    } catch (wrong) {
      this.#wrong ??= wrong
    }
    return this.#work(message)
  }

  #checkStart(message: Message, context: HandlerContext): void {
    const lane = this.#rig.feed.lanes.find((one) => one.partition.partition === message.position.partition) as FakeLane
    assert.equal(lane.live, true)
    assert.equal(lane.paused, false, "a paused partition starts nothing")
    assert.equal(lane.draining, false, "a draining partition starts nothing")
    const key = this.#plan.order === "partition" ? "" : keyOf(message)
    const { offset } = message.position
    if (this.#plan.order !== "none") {
      const last = mapOf(this.#last, lane).get(key) ?? -1n
      assert.ok(offset > last || (offset === last && context.attempt > 1), `offset ${offset} of ${key} after ${last}`)
      assert.equal(mapOf(this.#busy, lane).get(key) ?? 0, 0, `two of ${key} at once`)
    }
    assert.ok(this.#running < this.#plan.concurrency, `${this.#running} run`)
  }

  #work(message: Message): unknown {
    const lane = this.#rig.feed.lanes.find((one) => one.partition.partition === message.position.partition) as FakeLane
    const key = this.#plan.order === "partition" ? "" : keyOf(message)
    const { offset } = message.position
    mapOf(this.#last, lane).set(key, offset)
    mapOf(this.#busy, lane).set(key, 1)
    this.#running++
    const fails = this.#upTo(100) < this.#plan.failing
    const end = (): void => {
      this.#running--
      mapOf(this.#busy, lane).set(key, 0)
      if (fails) throw new Error("no")
      setOf(this.#well, lane).add(offset)
    }
    if (this.#random() < 0.3) return end()
    if (this.#random() < 0.2) return Promise.resolve().then(end)
    return new Promise<void>((resolve) => this.#rig.clock.setTimer(this.#upTo(60), resolve)).then(end)
  }

  #check(): void {
    if (this.#wrong !== undefined) throw this.#wrong
    for (const lane of this.#rig.feed.lanes) {
      const well = setOf(this.#well, lane)
      const gaveUp = setOf(this.#gaveUp, lane)
      for (const offset of lane.told) assert.ok(well.has(offset) || gaveUp.has(offset), `${offset} was not handled`)
      assert.equal(new Set(lane.told).size, lane.told.length, "each once")
      const open = [...well].filter((offset) => !lane.told.includes(offset))
      assert.deepEqual(open, [], "what was handled is told")
    }
  }

  async #finish(): Promise<void> {
    const { clock, run } = this.#rig
    const { end } = this.#plan
    let ending: Promise<void> | undefined
    if (end === "shutdown") ending = run.ending(10_000)
    else if (end === "stop") run.stop()
    else this.#cancel.abort()
    await clock.advance(5000)
    await ending
    assert.notEqual(this.#rig.outcome, undefined, "the run is over")
    const error = this.#rig.outcome?.error as MillraceError | undefined
    const expected = this.#plan.onFailure === "stop" ? ["cancelled", "handler", "corruption"] : ["cancelled"]
    assert.ok(error === undefined || expected.includes(error.kind), String(error))
    assert.equal(this.#running, 0)
    assert.equal(clock.timers, 0, "no timer is left")
    this.#check()
  }

  #upTo(most: number): number {
    return Math.floor(this.#random() * most)
  }
}

function keyOf(message: Message): string {
  return message.key === null ? "none" : `k${utf8.decode(message.key)}`
}

function mapOf<V>(maps: Map<FakeLane, Map<string, V>>, lane: FakeLane): Map<string, V> {
  let map = maps.get(lane)
  if (map === undefined) {
    map = new Map()
    maps.set(lane, map)
  }
  return map
}

function setOf(sets: Map<FakeLane, Set<bigint>>, lane: FakeLane): Set<bigint> {
  let set = sets.get(lane)
  if (set === undefined) {
    set = new Set()
    sets.set(lane, set)
  }
  return set
}
