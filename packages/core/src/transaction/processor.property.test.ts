import assert from "node:assert/strict"
import { test } from "node:test"
import { type Claim, ConnectionError, DiskFullError, FencedError, TransactionAbortedError } from "@millrace/contract"
import fc from "fast-check"
import { run } from "../producer/sending-rig.test-support.ts"
import type { Operation, TransactionFate } from "./fake-transactions.test-support.ts"
import { numbers, ProcessingRig } from "./processing-rig.test-support.ts"
import type { Processor } from "./processor.ts"

const partitions = 3
const perPartition = 40

/** Trouble of one question to the backend. */
const trouble: fc.Arbitrary<TransactionFate> = fc.oneof(
  { weight: 4, arbitrary: fc.constant({}) },
  { weight: 1, arbitrary: fc.record({ delayMs: fc.integer({ min: 1, max: 1500 }) }) },
  { weight: 1, arbitrary: fc.constant({ outcome: "lose" as const }) },
  { weight: 1, arbitrary: fc.constant({ outcome: "vanish" as const }) },
  { weight: 1, arbitrary: fc.constant({ outcome: "refuse" as const }) },
  { weight: 1, arbitrary: fc.constant({ outcome: "lose" as const, delayMs: 1200 }) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom(
        new TransactionAbortedError("the backend has aborted it"),
        new FencedError("the backend has fenced it"),
        new DiskFullError("no room"),
        new ConnectionError("lost", { outcome: "unknown" }),
      )
      .map((error) => ({ outcome: "refuse" as const, error })),
  },
)

const operations: readonly Operation[] = ["init", "begin", "append", "enlist", "commit", "abort", "load"]

/** What happens around the processor. */
const step = fc.oneof(
  fc.record({ kind: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 800 }) }),
  fc.record({
    kind: fc.constant("put" as const),
    partition: fc.nat(partitions - 1),
    count: fc.integer({ min: 1, max: 9 }),
  }),
  fc.record({ kind: fc.constant("revoke" as const), partition: fc.nat(partitions - 1) }),
  fc.record({ kind: fc.constant("lose" as const), partition: fc.nat(partitions - 1) }),
  fc.record({ kind: fc.constant("assign" as const), partition: fc.nat(partitions - 1) }),
  fc.record({ kind: fc.constant("restart" as const), orderly: fc.boolean() }),
)

/** A group of one living member at a time, over processors that come and go. */
class Course {
  readonly rig = new ProcessingRig({ partitions, retries: 1 })
  readonly put = new Array<number>(partitions).fill(0)
  readonly claims = new Map<number, Claim>()
  /** The last one of each partition that was taken away. */
  readonly former = new Map<number, Claim>()
  readonly failing: ReadonlySet<number>
  readonly batchLength: number
  processor: Processor | undefined

  constructor(options: { readonly failing: readonly number[]; readonly batchLength: number }) {
    this.failing = new Set(options.failing)
    this.batchLength = options.batchLength
  }

  async start(): Promise<void> {
    const attempts = new Map<string, number>()
    const joins = this.rig.input.groups.joins.length
    this.processor = this.rig.process(
      (text) => {
        const n = Number(text)
        const had = (attempts.get(text) ?? 0) + 1
        attempts.set(text, had)
        if (this.failing.has(n % 1000) && had % 2 === 1) throw new Error(`not at once: ${text}`)
        return n % 3 === 0 ? Promise.resolve(text) : text
      },
      { batchLength: this.batchLength, retry: { attempts: 3, backoffMs: 20 }, flushTimeoutMs: 900 },
    )
    // Whoever takes over has the partitions under claims of its own.
    for (const claim of this.claims.values()) this.rig.input.offsets.void.add(claim.token)
    this.claims.clear()
    // The group knows it only once it has an incarnation.
    for (let turns = 0; this.rig.input.groups.joins.length === joins; turns++) {
      assert.ok(turns < 2000, "it never joined")
      await this.rig.clock.advance(10)
    }
    this.giveAll()
  }

  giveAll(): void {
    for (let partition = 0; partition < partitions; partition++) this.give(partition)
  }

  give(partition: number): void {
    if (this.claims.has(partition)) return
    // What was given to somebody else is void, whether it was released or not.
    const former = this.former.get(partition)
    if (former !== undefined) this.rig.input.offsets.void.add(former.token)
    const [claim] = this.rig.assign(partition)
    this.claims.set(partition, claim as Claim)
  }

  /** Another member has it: what is asked under the old claim is refused from now on. */
  take(partition: number, how: "revoked" | "lost"): void {
    const claim = this.claims.get(partition)
    if (claim === undefined) return
    this.claims.delete(partition)
    this.former.set(partition, claim)
    if (how === "lost") this.rig.input.offsets.void.add(claim.token)
    this.rig.input.groups.membership.tell(how === "lost" ? { lost: [claim] } : { revoked: [claim] })
  }

  async stop(orderly: boolean): Promise<void> {
    const processor = this.processor as Processor
    // A crash: nothing of it is heard of any more.
    if (!orderly) for (const claim of this.claims.values()) this.rig.input.offsets.void.add(claim.token)
    await run(
      this.rig.clock,
      processor.shutdown({ timeoutMs: orderly ? 30_000 : 0 }).catch(() => {}),
      20,
    )
    await run(
      this.rig.clock,
      processor.done.catch(() => {}),
      20,
    )
  }

  /** What is committed and how far the group has come say the same, at any time. */
  check(): void {
    for (let partition = 0; partition < partitions; partition++) {
      const next = Number(this.rig.input.groupNext("g", partition) ?? 0n)
      const own = this.rig.made.filter((text) => Math.floor(Number(text) / 1000) === partition)
      assert.deepEqual(own, numbers(next, partition * 1000), `partition ${partition}: outputs and progress`)
    }
  }
}

test("whatever fails, and whoever comes and goes: each message's output once, in order, and progress exactly with it", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        fates: fc.array(fc.tuple(fc.constantFrom(...operations), trouble), { maxLength: 40 }),
        steps: fc.array(step, { maxLength: 30 }),
        failing: fc.array(fc.nat(perPartition), { maxLength: 4 }),
        batchLength: fc.constantFrom(1, 3, 7, 5000),
      }),
      async ({ fates, steps, failing, batchLength }) => {
        const course = new Course({ failing, batchLength })
        const { rig } = course
        const queues = new Map<Operation, TransactionFate[]>(operations.map((operation) => [operation, []]))
        for (const [operation, fate] of fates) {
          // These two never answer so, since they speak of no transaction.
          const isOdd = (operation === "init" || operation === "load") && fate.error?.retryable === false
          queues.get(operation)?.push(isOdd ? {} : fate)
        }
        rig.transactions.fate = (operation) => queues.get(operation)?.shift() ?? {}
        await course.start()
        for (const one of steps) {
          switch (one.kind) {
            case "wait":
              await rig.clock.advance(one.ms)
              break
            case "put": {
              const from = course.put[one.partition] as number
              course.put[one.partition] = from + one.count
              rig.input.put(one.partition * 1000 + from, one.partition * 1000 + from + one.count, one.partition)
              break
            }
            case "revoke":
              course.take(one.partition, "revoked")
              break
            case "lose":
              course.take(one.partition, "lost")
              break
            case "assign":
              course.give(one.partition)
              break
            case "restart":
              await course.stop(one.orderly)
              await course.start()
              break
          }
          await rig.clock.advance(0)
          course.check()
        }
        course.giveAll()
        for (let turns = 0; !isDone(course); turns++) {
          assert.ok(turns < 400, `it never came to its end: ${JSON.stringify(rig.made)} ${rig.aborts.at(-1)?.message}`)
          await rig.clock.advance(100)
          course.check()
        }
        await course.stop(true)
        course.check()
        await run(rig.clock, rig.context.close(1000))
        // What the backend still had to say is nobody's to hear.
        await rig.clock.advance(5000)
        assert.equal(rig.clock.timers, 0, "no timer is left")
      },
    ),
    { numRuns: 60 },
  )
})

function isDone({ rig, put }: Course): boolean {
  return put.every((count, partition) => (rig.input.groupNext("g", partition) ?? 0n) === BigInt(count))
}
