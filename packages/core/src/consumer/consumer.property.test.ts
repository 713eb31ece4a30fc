import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, type MillraceError, TimeoutError } from "@millrace/contract"
import fc from "fast-check"
import { openGroupConsumer } from "../group/group-consumer.ts"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import type { Message } from "../record/message.ts"
import type { Consumer } from "./consumer.ts"
import { FakeClient } from "./fake-session.test-support.ts"

const partitions = 3

/** What may happen to a member of a group. */
const happening = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      what: fc.constant("put" as const),
      partition: fc.nat({ max: 2 }),
      count: fc.integer({ min: 1, max: 9 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ what: fc.constant("markers" as const), partition: fc.nat({ max: 2 }) }) },
  { weight: 8, arbitrary: fc.record({ what: fc.constant("read" as const), count: fc.integer({ min: 1, max: 12 }) }) },
  { weight: 2, arbitrary: fc.record({ what: fc.constant("commit" as const), back: fc.nat({ max: 5 }) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("revoke" as const), partition: fc.nat({ max: 2 }) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("lose" as const), partition: fc.nat({ max: 2 }) }) },
  { weight: 2, arbitrary: fc.record({ what: fc.constant("assign" as const), partition: fc.nat({ max: 2 }) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("failStore" as const) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("failPoll" as const) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("wait" as const), ms: fc.nat({ max: 3000 }) }) },
)
type Happening = typeof happening extends fc.Arbitrary<infer H> ? H : never

const policies: readonly CommitPolicy[] = [
  { kind: "polling" },
  { kind: "all" },
  { kind: "each" },
  { kind: "every", count: 4 },
  { kind: "interval", intervalMs: 700 },
  { kind: "intervalOrAll", intervalMs: 300 },
  { kind: "intervalOrEvery", intervalMs: 300, count: 7 },
  { kind: "auto", every: 5, intervalMs: 900 },
  { kind: "disabled" },
]

/** One member under a scenario, with what it must have seen and may have stored. */
class Scenario {
  readonly client: FakeClient = new FakeClient({ partitions })
  readonly consumer: Consumer
  /** Tokens of the partitions that are assigned. */
  readonly assigned: (string | undefined)[] = [undefined, undefined, undefined]
  /** The next offset that must come of each partition, under the present claim. */
  readonly due: (bigint | undefined)[] = [undefined, undefined, undefined]
  /** Everything before was handled at some time. */
  readonly handled: bigint[] = [0n, 0n, 0n]
  readonly seen: Set<string>[] = [new Set(), new Set(), new Set()]
  readonly records: bigint[][] = [[], [], []]
  readonly recent: Message[] = []
  #open: Message | undefined
  #claims = 0
  #checked = 0

  static async begin(policy: CommitPolicy, batchLength: number): Promise<Scenario> {
    const client = new FakeClient({ partitions })
    client.groups.membership.tell({})
    const consumer = await openGroupConsumer(
      client.context,
      { topic: client.topic, group: "g" },
      { commitPolicy: policy, batchLength, prefetchRecords: 20, pollingRetryIntervalMs: 100 },
    )
    return new Scenario(client, consumer)
  }

  private constructor(client: FakeClient, consumer: Consumer) {
    this.client = client
    this.consumer = consumer
  }

  async run(one: Happening): Promise<void> {
    switch (one.what) {
      case "put":
        this.put(one.partition, one.count)
        break
      case "markers":
        this.client.log.putMarkers(this.client.place(one.partition), 2)
        break
      case "read":
        await this.read(one.count)
        break
      case "commit":
        await this.commit(one.back)
        break
      case "revoke":
      case "lose":
        await this.take(one.partition, one.what)
        break
      case "assign":
        await this.assign(one.partition)
        break
      case "failStore":
        this.client.offsets.failures.push(new ConnectionError("away"))
        break
      case "failPoll":
        this.client.log.pollFailures.push(new ConnectionError("away"))
        break
      case "wait":
        await this.client.clock.advance(one.ms)
        break
    }
    this.check()
  }

  put(partition: number, count: number): void {
    const place = this.client.place(partition)
    const end = this.client.log.find(place)?.end ?? 0n
    for (let n = 0; n < count; n++) this.records[partition]?.push(end + BigInt(n))
    this.client.put(Number(end), Number(end) + count, partition)
  }

  /** Reads up to `count` messages; the call for each says that the one before is handled. */
  async read(count: number): Promise<boolean> {
    for (let n = 0; n < count; n++) {
      const call = this.consumer.nextWithin(200).catch((error: MillraceError) => error)
      this.handle()
      await this.client.clock.advance(200)
      const message = await call
      if (message instanceof TimeoutError) return false
      // Stores that fail for too long are told, and reading goes on.
      if (message instanceof ConnectionError) continue
      if (message instanceof Error) throw message
      this.got(message)
      this.check()
    }
    return true
  }

  got(message: Message): void {
    const { partition, offset } = message.position
    assert.ok(this.assigned[partition] !== undefined, `partition ${partition} is not assigned`)
    const due = this.due[partition]
    if (due !== undefined) {
      const expected = this.records[partition]?.find((known) => known >= due)
      assert.equal(offset, expected, `partition ${partition}, due ${due}`)
    }
    this.due[partition] = offset + 1n
    this.seen[partition]?.add(String(offset))
    this.recent.push(message)
    this.#open = message
  }

  /** The message in hand is done. */
  handle(): void {
    if (this.#open !== undefined) this.raise(this.#open)
    this.#open = undefined
  }

  raise(message: Message): void {
    const { partition, offset } = message.position
    if (offset + 1n > (this.handled[partition] as bigint)) this.handled[partition] = offset + 1n
  }

  async commit(back: number): Promise<void> {
    const message = this.recent.at(-1 - back)
    if (message === undefined) return
    this.raise(message)
    const call = this.consumer.commit(message).catch((error: MillraceError) => error.kind)
    await this.client.clock.advance(0)
    const outcome = await call
    assert.ok([undefined, "not-assigned", "connection"].includes(outcome as never), String(outcome))
  }

  async assign(partition: number): Promise<void> {
    if (this.assigned[partition] !== undefined) return
    const token = `claim ${this.#claims++}`
    this.assigned[partition] = token
    this.due[partition] = this.client.groupNext("g", partition) ?? 0n
    this.client.groups.membership.tell({ assigned: [this.client.claim(partition, token)] })
    await this.client.settle()
  }

  async take(partition: number, how: "revoke" | "lose"): Promise<void> {
    const token = this.assigned[partition]
    if (token === undefined) return
    const claim = this.client.claim(partition, token)
    this.client.groups.membership.tell(how === "revoke" ? { revoked: [claim] } : { lost: [claim] })
    if (how === "lose") this.client.offsets.void.add(token)
    await this.client.settle()
    this.assigned[partition] = undefined
    this.due[partition] = undefined
    if (how === "lose") return
    await this.client.clock.advance(5000)
    assert.equal(this.client.groups.membership.released.at(-1)?.token, token)
    this.client.offsets.void.add(token)
  }

  /** Nothing that was stored passes what is handled. Offsets without records count as handled with the record before them. */
  check(): void {
    const { history } = this.client.offsets
    for (; this.#checked < history.length; this.#checked++) {
      const { partition, offset } = history[this.#checked] as { partition: number; offset: bigint }
      const handled = this.handled[partition] as bigint
      const unhandled = this.records[partition]?.find((known) => known >= handled)
      assert.ok(unhandled === undefined || offset <= unhandled, `stored ${offset}, though ${unhandled} is not handled`)
    }
  }

  /** Everything is assigned, read to its end, and shut down. */
  async finish(): Promise<void> {
    this.client.offsets.failures.length = 0
    this.client.log.pollFailures.length = 0
    for (let partition = 0; partition < partitions; partition++) await this.assign(partition)
    await this.client.clock.advance(2000)
    while (await this.read(100));
    const ended = this.consumer.shutdown()
    await this.client.clock.advance(0)
    await ended
    this.check()
  }
}

describe("a member of a group, whatever happens to it", () => {
  for (const policy of policies) {
    const { kind } = policy
    test(`${kind}: order is kept, nothing is lost, no store passes an unhandled message, a clean end reaches the end`, async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(happening, { minLength: 5, maxLength: 25 }),
          fc.integer({ min: 1, max: 6 }),
          async (happenings, batchLength) => {
            const scenario = await Scenario.begin(policy, batchLength)
            for (const one of happenings) await scenario.run(one)
            await scenario.finish()
            for (let partition = 0; partition < partitions; partition++) {
              for (const offset of scenario.records[partition] as bigint[]) {
                assert.ok(
                  scenario.seen[partition]?.has(String(offset)),
                  `record ${offset} of partition ${partition} never came`,
                )
              }
              const end = scenario.client.log.find(scenario.client.place(partition))?.end
              if (kind !== "disabled") assert.equal(scenario.client.groupNext("g", partition) ?? 0n, end)
            }
            assert.equal(scenario.client.clock.timers, 0)
            assert.equal(scenario.client.owned.size, 0)
          },
        ),
        { numRuns: 25 },
      )
    })
  }
})
