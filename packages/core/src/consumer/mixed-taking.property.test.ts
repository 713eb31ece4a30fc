import assert from "node:assert/strict"
import { test } from "node:test"
import { MillraceError } from "@millrace/contract"
import fc from "fast-check"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import type { Message } from "../record/message.ts"
import type { Consumer } from "./consumer.ts"
import { FakeClient } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

/** What several callers may do with one consumer, without waiting for each other. */
const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant("put" as const), count: fc.integer({ min: 1, max: 6 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom("next" as const, "batch" as const, "rented" as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("within" as const), ms: fc.nat({ max: 20 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("abort" as const, "leave" as const, "run" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat({ max: 40 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("abortAndPut" as const) }) },
)
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

const policies: readonly CommitPolicy[] = [
  { kind: "polling" },
  { kind: "all" },
  { kind: "each" },
  { kind: "every", count: 3 },
  { kind: "interval", intervalMs: 15 },
  { kind: "auto", after: "delivery", every: 2, intervalMs: false },
  { kind: "onRead" },
]

/** Several callers of one consumer, and what each of them got. */
class Callers {
  readonly client: FakeClient = new FakeClient()
  readonly consumer: Consumer
  readonly got: bigint[] = []
  put = 0
  #signals: AbortController[] = []
  #iterator: AsyncIterator<Message>
  readonly #calls: Promise<void>[] = []
  #running = false

  constructor(commitPolicy: CommitPolicy) {
    this.consumer = openConsumer(
      this.client.context,
      { topic: this.client.topic, name: "worker", partition: 0 },
      { commitPolicy, batchLength: 4 },
    )
    this.#iterator = this.consumer[Symbol.asyncIterator]()
  }

  async run(steps: readonly Step[]): Promise<void> {
    for (const one of steps) {
      this.#do(one)
      if (one.do === "wait") await this.client.clock.advance(one.ms)
    }
  }

  /** Takes what is left, and ends. */
  async end(): Promise<void> {
    for (const controller of this.#signals.splice(0)) controller.abort()
    await this.client.clock.advance(100)
    while (new Set(this.got).size < this.put) this.got.push((await this.consumer.nextWithin(1000)).position.offset)
    // A loop that was left early leaves its last message unhandled until somebody asks for more.
    this.#take(this.consumer.nextWithin(0).then(({ position }) => [position.offset]))
    await this.client.clock.advance(1)
    await this.consumer.shutdown()
    await Promise.all(this.#calls)
    assert.equal(this.client.clock.timers, 0)
  }

  #do(one: Step): void {
    const controller = new AbortController()
    const { signal } = controller
    switch (one.do) {
      case "put":
        this.client.put(this.put, this.put + one.count)
        this.put += one.count
        break
      case "next":
        this.#take(
          this.#iterator.next().then(({ done, value }) => (done === true ? [] : [(value as Message).position.offset])),
        )
        break
      case "within":
        this.#take(this.consumer.nextWithin(one.ms).then(({ position }) => [position.offset]))
        break
      case "batch":
        this.#signals.push(controller)
        this.#take(
          this.consumer
            .batches({ signal })
            [Symbol.asyncIterator]()
            .next()
            .then(({ done, value }) => (done === true ? [] : offsetsOf(value))),
        )
        break
      case "rented":
        this.#signals.push(controller)
        this.#take(this.consumer.receiveRented({ signal }).then(offsetsOf))
        break
      case "run":
        this.#handle(controller)
        break
      case "abortAndPut":
        this.client.put(this.put, ++this.put)
        for (const each of this.#signals.splice(0)) each.abort()
        break
      case "abort":
        for (const each of this.#signals.splice(0)) each.abort()
        break
      case "leave":
        this.#take((this.#iterator.return?.() ?? Promise.resolve()).then(() => []))
        this.#iterator = this.consumer[Symbol.asyncIterator]()
        break
    }
  }

  #handle(controller: AbortController): void {
    if (this.#running) return
    this.#running = true
    this.#signals.push(controller)
    const handler = (message: Message): void => void this.got.push(message.position.offset)
    const running = this.consumer.run(handler, { signal: controller.signal, concurrency: 2 }).finally(() => {
      this.#running = false
    })
    this.#take(running.then(() => []))
  }

  #take(call: Promise<readonly bigint[]>): void {
    this.#calls.push(
      call.then(
        (offsets) => void this.got.push(...offsets),
        (error) => assert.ok(error instanceof MillraceError, String(error)),
      ),
    )
  }
}

function offsetsOf(batch: Iterable<Message>): bigint[] {
  return [...batch].map(({ position }) => position.offset)
}

for (const policy of policies) {
  test(`${policy.kind}: however callers take messages, give up and come back, each message comes to one of them`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const callers = new Callers(policy)
        await callers.run(steps)
        const stored = callers.client.storedNext("worker") ?? 0n
        if (policy.kind !== "onRead") {
          await callers.client.settle()
          const first = firstMissing(callers.got)
          assert.ok(stored <= first, `stored ${stored}, first that nobody got ${first}`)
        }
        await callers.end()
        const expected = Array.from({ length: callers.put }, (_, offset) => BigInt(offset))
        assert.deepEqual([...callers.got].sort(ascending), expected)
        assert.equal(callers.client.storedNext("worker") ?? 0n, BigInt(callers.put))
      }),
      { numRuns: 60 },
    )
  })
}

function ascending(one: bigint, other: bigint): number {
  return one < other ? -1 : one > other ? 1 : 0
}

function firstMissing(got: readonly bigint[]): bigint {
  const all = new Set(got)
  let next = 0n
  while (all.has(next)) next++
  return next
}
