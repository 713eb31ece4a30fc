import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, MillraceError, TimeoutError } from "@millrace/contract"
import fc from "fast-check"
import type { Consumer } from "../consumer/consumer.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { ReadOperation } from "./read-operation.ts"

const partitions = 2
const partition = fc.nat({ max: partitions - 1 })

const happening = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ what: fc.constant("put" as const), partition, count: fc.integer({ min: 1, max: 6 }) }),
  },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("markers" as const), partition }) },
  { weight: 8, arbitrary: fc.record({ what: fc.constant("read" as const), count: fc.integer({ min: 1, max: 6 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({ what: fc.constantFrom("revoke" as const, "assign" as const, "lose" as const), partition }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      what: fc.constantFrom("refuse" as const, "cut" as const, "lostAnswer" as const, "failPoll" as const),
    }),
  },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("wait" as const), ms: fc.nat({ max: 2000 }) }) },
)
type Happening = typeof happening extends fc.Arbitrary<infer H> ? H : never

/** One member with the policy `onRead`, to which anything may happen but a crash. */
class Scenario {
  readonly client: FakeClient
  readonly consumer: Consumer
  readonly tokens: (string | undefined)[] = []
  readonly records: string[] = []
  readonly seen: string[] = []
  #claims = 0

  static async begin(): Promise<Scenario> {
    const client = new FakeClient({ partitions })
    client.groups.membership.tell({})
    const consumer = await openGroupConsumer(
      client.context,
      { topic: client.topic, group: "g" },
      { commitPolicy: { kind: "onRead" }, batchLength: 4, prefetchRecords: 10, pollingRetryIntervalMs: 100 },
    )
    return new Scenario(client, consumer)
  }

  private constructor(client: FakeClient, consumer: Consumer) {
    this.client = client
    this.consumer = consumer
  }

  async run(one: Happening): Promise<void> {
    const { offsets, log } = this.client
    switch (one.what) {
      case "put":
        this.put(one.partition, one.count)
        break
      case "markers":
        log.putMarkers(this.client.place(one.partition), 2)
        break
      case "read":
        for (let n = 0; n < one.count; n++) await this.read()
        break
      case "revoke":
      case "lose":
        await this.take(one.partition, one.what)
        break
      case "assign":
        await this.assign(one.partition)
        break
      case "refuse":
        offsets.failures.push(new ConnectionError("away"))
        break
      case "cut":
        offsets.failures.push(new ConnectionError("cut off", { outcome: "unknown" }))
        break
      case "lostAnswer":
        offsets.lostAnswers.push(new ConnectionError("cut off", { outcome: "unknown" }))
        break
      case "failPoll":
        log.pollFailures.push(new ConnectionError("away"))
        break
      case "wait":
        await this.client.clock.advance(one.ms)
        break
    }
  }

  put(partition: number, count: number): void {
    const end = Number(this.client.log.find(this.client.place(partition))?.end)
    for (let n = 0; n < count; n++) this.records.push(`${partition}/${end + n}`)
    this.client.put(end, end + count, partition)
  }

  /** One call; a partition that has stopped is resolved. Answers whether there was something. */
  async read(): Promise<boolean> {
    const call = this.consumer.nextWithin(200).catch((error: unknown) => error)
    await this.client.clock.advance(200)
    const outcome = await call
    if (outcome instanceof TimeoutError && ReadOperation.of(outcome) === undefined) return false
    if (outcome instanceof MillraceError) {
      const operation = ReadOperation.of(outcome)
      assert.ok(operation !== undefined, String(outcome))
      // It may be gone with its partition.
      const resolved = this.consumer.resolve(operation).catch((error: MillraceError) => error.kind)
      await this.client.clock.advance(0)
      assert.ok([true, false, "invalid"].includes((await resolved) as never))
      return true
    }
    const { partition, offset } = (outcome as { position: { partition: number; offset: bigint } }).position
    const name = `${partition}/${offset}`
    assert.ok(this.tokens[partition] !== undefined, `${name} of a partition that is another's`)
    assert.ok(!this.seen.includes(name), `${name} came twice`)
    assert.ok((this.client.groupNext("g", partition) ?? 0n) > offset, `${name} was handed out and not stored`)
    this.seen.push(name)
    return true
  }

  async assign(partition: number): Promise<void> {
    if (this.tokens[partition] !== undefined) return
    const token = `claim ${this.#claims++}`
    this.tokens[partition] = token
    this.client.groups.membership.tell({ assigned: [this.client.claim(partition, token)] })
    await this.client.settle()
  }

  async take(partition: number, how: "revoke" | "lose"): Promise<void> {
    const token = this.tokens[partition]
    if (token === undefined) return
    const claim = this.client.claim(partition, token)
    if (how === "lose") this.client.offsets.void.add(token)
    this.client.groups.membership.tell(how === "revoke" ? { revoked: [claim] } : { lost: [claim] })
    await this.client.clock.advance(how === "lose" ? 0 : 5000)
    this.tokens[partition] = undefined
    this.client.offsets.void.add(token)
  }

  async finish(): Promise<void> {
    const { offsets, log } = this.client
    offsets.failures.length = 0
    offsets.lostAnswers.length = 0
    log.pollFailures.length = 0
    for (let n = 0; n < partitions; n++) await this.assign(n)
    await this.client.clock.advance(1000)
    while (await this.read());
    const ended = this.consumer.shutdown()
    await this.client.clock.advance(0)
    await ended
    assert.equal(this.client.clock.timers, 0)
    assert.equal(this.client.owned.size, 0)
  }
}

describe("a member with the policy onRead, whatever happens to it", () => {
  test("gets nothing twice, nothing before it is stored, and loses nothing as long as it loses no partition", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(happening, { minLength: 5, maxLength: 30 }), async (happenings) => {
        const scenario = await Scenario.begin()
        for (const one of happenings) await scenario.run(one)
        await scenario.finish()
        if (happenings.some(({ what }) => what === "lose")) return
        assert.deepEqual([...scenario.seen].sort(), [...scenario.records].sort())
      }),
      { numRuns: 60 },
    )
  })
})
