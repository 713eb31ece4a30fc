/** A member with handlers at work, whose partitions come and go in any order. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError, type MillraceError } from "@millrace/contract"
import fc from "fast-check"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import type { LogConsumer } from "../consumer/log-consumer.ts"
import type { Message } from "../record/message.ts"
import { openGroupConsumer } from "./group-consumer.ts"

const partitions = 3
const someMs = 700

const happening = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      what: fc.constant("put" as const),
      partition: fc.nat(2),
      count: fc.integer({ min: 1, max: 6 }),
    }),
  },
  { weight: 4, arbitrary: fc.record({ what: fc.constant("assign" as const), partition: fc.nat(2) }) },
  { weight: 2, arbitrary: fc.record({ what: fc.constant("revoke" as const), partition: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("lose" as const), partition: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.constant({ what: "failStore" as const }) },
  { weight: 1, arbitrary: fc.constant({ what: "failMembership" as const }) },
  { weight: 6, arbitrary: fc.record({ what: fc.constant("wait" as const), ms: fc.nat(someMs) }) },
)
type Happening = typeof happening extends fc.Arbitrary<infer H> ? H : never

const member = fc.record({
  onRevoke: fc.constantFrom("finish" as const, "fence" as const),
  handlerTimeoutMs: fc.constantFrom(undefined, 900),
  concurrency: fc.integer({ min: 1, max: 5 }),
  order: fc.constantFrom("partition" as const, "none" as const),
  /** How long each handler takes in turn, in ms; one above the time-out is overdue. */
  workMs: fc.array(fc.constantFrom(0, 0, 30, 200, 2000), { minLength: 1, maxLength: 8 }),
  commitPolicy: fc.constantFrom(
    { kind: "each" as const },
    { kind: "polling" as const },
    { kind: "every" as const, count: 3 },
  ),
})
type Behaviour = typeof member extends fc.Arbitrary<infer M> ? M : never

/** One member under a scenario, with what it owns as the group sees it. */
class Scenario {
  readonly client = new FakeClient({ partitions })
  readonly #options: Behaviour
  readonly #ends = [0, 0, 0]
  readonly #tokens = new Map<number, string>()
  /** Claims that are void, with how many stores there had been: none of them may be stored later. */
  readonly #void = new Map<string, number>()
  readonly #handled = [new Set<bigint>(), new Set<bigint>(), new Set<bigint>()]
  /** The offset that was begun last under each claim. */
  readonly #begun = new Map<string, bigint>()
  #claims = 0
  #turn = 0
  #consumer: LogConsumer | undefined
  #running: Promise<void> | undefined
  #failure: MillraceError | undefined
  /** Claims that the program was told it is about to lose. */
  readonly #leaving = new Set<string>()

  constructor(options: Behaviour) {
    this.#options = options
  }

  async begin(): Promise<void> {
    const { client } = this
    const { onRevoke, handlerTimeoutMs, commitPolicy, concurrency, order } = this.#options
    client.groups.membership.tell({})
    const options: GroupConsumerOptions = {
      onRevoke,
      commitPolicy,
      pollingRetryIntervalMs: 100,
      prefetchRecords: 8,
      batchLength: 4,
    }
    const timed = handlerTimeoutMs === undefined ? options : { ...options, handlerTimeoutMs }
    const opening = openGroupConsumer(client.context, { topic: client.topic, group: "g" }, timed)
    this.#consumer = (await opening) as LogConsumer
    // What the member is told to give up is void for the group once it says so.
    this.#consumer.on({
      revoking: ({ partitions: places }) => {
        for (const { partition } of places) this.#leaving.add(this.#tokens.get(partition) ?? "")
      },
      revoked: (places) => this.#voided(places),
      lost: (places) => this.#voided(places),
    })
    const running = this.#consumer.run((message) => this.#handle(message), { concurrency, order })
    this.#running = running.catch((error: MillraceError) => {
      this.#failure = error
    })
  }

  async step(one: Happening): Promise<void> {
    const { client } = this
    const membership = client.groups.membership
    switch (one.what) {
      case "put": {
        const end = this.#ends[one.partition] as number
        this.#ends[one.partition] = end + one.count
        client.put(end, end + one.count, one.partition)
        break
      }
      case "assign": {
        if (this.#tokens.has(one.partition) || membership.left) return
        const token = `${one.partition}/${++this.#claims}`
        this.#tokens.set(one.partition, token)
        membership.tell({ assigned: [client.claim(one.partition, token)] })
        break
      }
      case "revoke":
      case "lose": {
        const token = this.#tokens.get(one.partition)
        if (token === undefined || membership.left) return
        const claims = [client.claim(one.partition, token)]
        membership.tell(one.what === "revoke" ? { revoked: claims, deadlineMs: 1000 } : { lost: claims })
        // A revocation is over when the member has released it: until then nobody assigns it again.
        await client.clock.advance(one.what === "revoke" ? 1000 : 0)
        this.#voided([one])
        break
      }
      case "failStore":
        client.offsets.failures.push(new ConnectionError("away"))
        break
      case "failMembership":
        if (membership.left) return
        membership.tell(new ConnectionError("no coordinator", { outcome: "rejected" }))
        await client.clock.advance(0)
        break
      case "wait":
        await client.clock.advance(one.ms)
        break
    }
    await client.settle()
    this.#check()
  }

  /** Everything is given to the member again, and handled; then nothing is left behind. */
  async end(): Promise<void> {
    const { client } = this
    await client.clock.advance(3000)
    const ending = this.#consumer?.shutdown().catch(() => {})
    await client.clock.advance(20_000)
    await ending
    await this.#running
    this.#check()
    assert.equal(client.clock.timers, 0, "a timer is left")
    assert.equal(client.owned.size, 0)
  }

  async #handle(message: Message): Promise<void> {
    const { partition, offset } = message.position
    const token = message.checkpoint().claim?.token as string
    assert.equal(this.#tokens.get(partition), token, `${partition}/${offset} was handed out under ${token}`)
    assert.ok(!this.#leaving.has(token), `${partition}/${offset} was handed out behind the event revoking`)
    const last = this.#begun.get(token)
    if (last !== undefined) assert.equal(offset, last + 1n, "in order, none twice and none left out")
    this.#begun.set(token, offset)
    const ms = this.#options.workMs[this.#turn++ % this.#options.workMs.length] as number
    if (ms > 0) await new Promise<void>((resolve) => void this.client.clock.setTimer(ms, resolve))
    // What is handled after the claim is gone may be repeated, and is handled all the same.
    this.#handled[partition]?.add(offset)
  }

  #voided(places: readonly { readonly partition: number }[]): void {
    for (const { partition } of places) {
      const token = this.#tokens.get(partition)
      if (token === undefined) continue
      this.#tokens.delete(partition)
      this.client.offsets.void.add(token)
      this.#void.set(token, this.client.offsets.history.length)
    }
  }

  #check(): void {
    // A handler that is still at work at the end is told of; what a handler fails with is a check of ours.
    if (this.#failure !== undefined && this.#failure.kind !== "timeout") throw this.#failure
    const { history } = this.client.offsets
    for (const [index, entry] of history.entries()) {
      const voided = this.#void.get(entry.claim?.token as string)
      if (voided !== undefined) assert.ok(index < voided, `stored for ${entry.partition} after the claim was given up`)
      for (let offset = 0n; offset < entry.offset; offset++) {
        assert.ok(
          this.#handled[entry.partition]?.has(offset),
          `stored ${entry.offset} of ${entry.partition}, ${offset} not handled`,
        )
      }
    }
  }
}

test("handlers at work while partitions come and go: nothing that is not owned, no commit after a revocation, no hole passed", async () => {
  await fc.assert(
    fc.asyncProperty(member, fc.array(happening, { maxLength: 40 }), async (options, happenings) => {
      const scenario = new Scenario(options)
      await scenario.begin()
      for (const one of happenings) await scenario.step(one)
      await scenario.end()
    }),
    { numRuns: 150 },
  )
})
