import assert from "node:assert/strict"
import { rmSync } from "node:fs"
import test from "node:test"
import type { QueueSpec, Watermarks } from "@millrace/contract"
import fc from "fast-check"
import { verifyStore } from "../verify.ts"
import { EngineFixture } from "./engine.test-support.ts"
import { type Pulled, plainSpec, QueueFixture } from "./queue-fixture.test-support.ts"
import { QueueModel } from "./queue-model.test-support.ts"

const verdicts = ["ack", "ack", "nak", "inProgress", "terminate"] as const

type Step =
  | { readonly do: "append"; readonly partition: number; readonly count: number }
  | { readonly do: "pull"; readonly engine: number; readonly most: number; readonly bytes: number }
  | {
      readonly do: "settle"
      readonly engine: number
      readonly from: number
      readonly count: number
      readonly verdict: (typeof verdicts)[number]
      readonly delayMs: number
    }
  | { readonly do: "advance"; readonly engine: number; readonly ms: number }
  | { readonly do: "trim"; readonly partition: number; readonly part: number }
  | { readonly do: "reopen"; readonly engine: number }

const engine = fc.nat({ max: 1 })
const partition = fc.nat({ max: 1 })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant("append" as const), partition, count: fc.integer({ min: 1, max: 12 }) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("pull" as const),
      engine,
      most: fc.integer({ min: 1, max: 20 }),
      bytes: fc.constantFrom(1, 250, 100_000),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      engine,
      from: fc.nat({ max: 60 }),
      count: fc.integer({ min: 1, max: 8 }),
      verdict: fc.constantFrom(...verdicts),
      delayMs: fc.constantFrom(0, 0, 40, 300),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant("advance" as const), engine, ms: fc.constantFrom(1, 40, 99, 100, 300) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("trim" as const), partition, part: fc.nat({ max: 100 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("reopen" as const), engine }) },
)

const spec: fc.Arbitrary<QueueSpec> = fc.record({
  ackWaitMs: fc.constant(100),
  backoffMs: fc.constantFrom([], [], [40, 300]),
  ackPolicy: fc.constantFrom("explicit" as const, "explicit" as const, "all" as const),
  startAt: fc.constant({ kind: "first" } as const),
  maxAckPending: fc.constantFrom(5, 1000),
})

test("whatever two engines pull, settle, wait for and lose, each record is delivered until it is settled, and never to two", async () => {
  await fc.assert(
    fc.asyncProperty(spec, fc.array(step, { minLength: 5, maxLength: 60 }), async (settings, steps) => {
      const run = new ModelRun(settings)
      try {
        for (const next of steps) await run.step(next)
        await run.drain()
      } finally {
        run.end()
      }
    }),
    { numRuns: 40 },
  )
})

/** Two engines on one store, beside the model. */
class ModelRun {
  readonly #stores: readonly EngineFixture[]
  readonly #queues: readonly QueueFixture[]
  readonly #model: QueueModel
  readonly #clocks = [0, 0]
  /** Everything that was ever pulled: tokens of old deliveries are tried too. */
  readonly #taken: Pulled[] = []

  constructor(settings: QueueSpec) {
    const first = new EngineFixture()
    const topic = first.createTopic({ partitions: 2, durability: "written", offsetDurability: "written" })
    this.#stores = [first, new EngineFixture(first.path)]
    const whole = { spec: { ...plainSpec, ...settings } }
    this.#queues = this.#stores.map((store) => new QueueFixture(store, topic, whole))
    this.#model = new QueueModel(whole.spec, 2)
  }

  async step(step: Step): Promise<void> {
    switch (step.do) {
      case "append":
        this.#store(0).appendMany(this.#queue(0).topic, step.count, { partition: step.partition })
        this.#model.appended(step.partition, step.count)
        break
      case "pull":
        this.#pull(step.engine, step.most, step.bytes)
        break
      case "settle":
        this.#settle(step)
        break
      case "advance":
        await this.#advance(step.engine, step.ms)
        break
      case "trim":
        this.#trim(step.partition, step.part)
        break
      case "reopen":
        this.#store(step.engine).reopen()
        this.#queue(step.engine).open()
        this.#model.reopened(step.engine, this.#clocks)
        break
    }
    for (const queue of this.#queues) this.#model.check(queue.describe())
  }

  /** Whatever was given back, or is over, comes in the end. */
  async drain(): Promise<void> {
    for (let round = 0; round < 200 && !this.#model.isDone; round++) {
      const engine = round % 2
      this.#pull(engine, 50, 100_000)
      this.#settle({ do: "settle", engine, from: 0, count: this.#taken.length, verdict: "ack", delayMs: 0 })
      await this.#advance(engine, 300)
    }
    assert.ok(this.#model.isDone, "records are left that nobody gets")
    for (const queue of this.#queues) this.#model.check(queue.describe())
    for (const engine of [0, 1]) assert.deepEqual(this.#queue(engine).pull(), [])
    assert.deepEqual(verifyStore(this.#store(0).path).problems, [])
  }

  end(): void {
    for (const store of this.#stores) store.engine.close()
    rmSync(this.#store(0).path, { recursive: true, force: true })
  }

  #pull(engine: number, most: number, bytes: number): void {
    const messages = this.#queue(engine).pull(most, bytes)
    this.#model.pulled(messages, { engine, clocks: this.#clocks, most })
    this.#taken.push(...messages)
  }

  #settle({ engine, from, count, verdict, delayMs }: Step & { readonly do: "settle" }): void {
    const messages = this.#taken.slice(from, from + count)
    const expected = messages.map((message) => this.#model.settle(message, verdict, { delayMs, clocks: this.#clocks }))
    const outcomes = this.#queue(engine).settle(messages, verdict, { delayMs })
    const told = expected.map((one, index) => (one === "either" ? outcomes[index] : one))
    assert.deepEqual(outcomes, told, verdict)
  }

  async #advance(engine: number, ms: number): Promise<void> {
    this.#clocks[engine] = (this.#clocks[engine] as number) + ms
    await this.#store(engine).clock.advance(ms)
  }

  #trim(partition: number, part: number): void {
    const { topic, store } = this.#queue(0)
    const place = this.#model.partitions[partition]
    const before = ((place?.end ?? 0n) * BigInt(part)) / 100n
    const at = { stream: topic.stream, topic: topic.topic, partition }
    const { first } = store.call<Watermarks>("catalog.trim", { at, before })
    this.#model.trimmed(partition, first)
  }

  #store(engine: number): EngineFixture {
    return this.#stores[engine] as EngineFixture
  }

  #queue(engine: number): QueueFixture {
    return this.#queues[engine] as QueueFixture
  }
}
