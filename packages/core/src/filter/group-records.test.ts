/** What members of a group read under its filter, and what they make of its changes. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError, InvalidError, UnsupportedError } from "@millrace/contract"
import { take } from "../consumer/fake-session.test-support.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { sparseRefreshMs } from "./filter-watch.ts"
import { atLeast, Bench } from "./filtered-group.test-support.ts"

describe("a member of a group with a filter", () => {
  test("gets what the filter selects, and its progress covers all that was looked at", async () => {
    const bench = new Bench()
    bench.configure({ path: "n", op: "in", value: [2, 5] })
    bench.put(0, 10)
    const consumer = await bench.open()
    assert.deepEqual(await bench.numbers(consumer, 2), [2, 5])
    await bench.nothingComes(consumer)
    await consumer.shutdown()
    assert.equal(bench.client.groupNext("g"), 10n)
    assert.equal(bench.client.clock.timers, 0)
  })

  test("sees no damage in what is left out, on a backend whose offsets have no holes", async () => {
    const bench = new Bench(1, { holes: false })
    bench.put(0, 4)
    const consumer = await bench.open()
    assert.deepEqual(await bench.numbers(consumer, 1), [0])
    bench.configure({ path: "n", op: "in", value: [2, 5, 9] })
    await bench.client.clock.advance(sparseRefreshMs)
    bench.put(4, 10)
    assert.deepEqual(await bench.numbers(consumer, 3), [2, 5, 9])
    await consumer.shutdown()
  })

  for (const commitPolicy of [{ kind: "polling" }, { kind: "all" }, { kind: "every", count: 100 }] as const) {
    test(`stores progress while nothing matches for a long time (${commitPolicy.kind})`, async () => {
      const bench = new Bench()
      bench.configure(atLeast(1000))
      const consumer = await bench.open({ commitPolicy })
      const waiting = consumer.next()
      for (let n = 0; n < 50; n += 10) {
        bench.put(n, n + 10)
        await bench.client.clock.advance(1000)
        assert.equal(bench.client.groupNext("g"), BigInt(n + 10))
      }
      await consumer.shutdown()
      await waiting
    })
  }

  test("a message in hand is not passed by progress over what was left out behind it", async () => {
    const bench = new Bench()
    bench.configure({ path: "n", op: "eq", value: 0 })
    bench.put(0, 10)
    const consumer = await bench.open()
    assert.deepEqual(await bench.numbers(consumer, 1), [0])
    bench.put(10, 20)
    await bench.client.clock.advance(5000)
    assert.equal(bench.client.groupNext("g"), undefined)
    await bench.nothingComes(consumer)
    await bench.client.clock.advance(2000)
    assert.equal(bench.client.groupNext("g"), 20n)
    await consumer.shutdown()
  })
})

describe("a filter that changes", () => {
  test("is followed within 2 s: what was read ahead under the old one is not handed out, and nothing is left out or repeated", async () => {
    const bench = new Bench()
    bench.configure(atLeast(0))
    bench.put(0, 10)
    const consumer = await bench.open({ commitPolicy: { kind: "each" } })
    assert.deepEqual(await bench.numbers(consumer, 3), [0, 1, 2])
    bench.replace(1, { path: "n", op: "in", value: [0, 4, 8, 12] })
    await bench.noticed()
    bench.put(10, 14)
    assert.deepEqual(await bench.numbers(consumer, 3), [4, 8, 12])
    bench.mutate({ type: "release" })
    await bench.noticed()
    bench.put(14, 16)
    // 13 was looked at under the filter that left it out.
    assert.deepEqual(await bench.numbers(consumer, 2), [14, 15])
    await consumer.shutdown()
    assert.equal(bench.client.groupNext("g"), 16n)
  })

  test("comes to a group that had none, and takes back what the group was reading too", async () => {
    const bench = new Bench()
    bench.put(0, 10)
    const consumer = await bench.open()
    assert.deepEqual(await bench.numbers(consumer, 2), [0, 1])
    bench.configure(atLeast(8))
    await bench.client.clock.advance(sparseRefreshMs)
    assert.deepEqual(await bench.numbers(consumer, 2), [8, 9])
    await consumer.shutdown()
  })

  test("leaves what is in hand alone: it can be committed, and progress waits for it", async () => {
    const bench = new Bench()
    bench.configure(atLeast(0))
    bench.put(0, 10)
    const consumer = await bench.open({ commitPolicy: { kind: "auto", after: "marked", every: 1 } })
    const [first, second] = await bench.soon(take(consumer, 2))
    assert.ok(first !== undefined && second !== undefined)
    bench.replace(1, atLeast(9))
    await bench.noticed()
    assert.deepEqual(await bench.numbers(consumer, 1), [9])
    consumer.mark(second)
    await bench.client.settle()
    assert.equal(bench.client.groupNext("g"), undefined)
    consumer.mark(first)
    await bench.client.settle()
    assert.equal(bench.client.groupNext("g"), 9n)
    await consumer.shutdown()
  })

  test("leaves what is in hand to be handled by the shutdown, as ever", async () => {
    const bench = new Bench()
    bench.configure(atLeast(0))
    bench.put(0, 10)
    const consumer = await bench.open()
    assert.deepEqual(await bench.numbers(consumer, 3), [0, 1, 2])
    bench.replace(1, atLeast(50))
    await bench.noticed()
    await consumer.shutdown()
    assert.ok((bench.client.groupNext("g") ?? 0n) >= 3n)
  })

  test("is noticed at once when partitions come from another member, who may have known more", async () => {
    const bench = new Bench(2)
    bench.configure(atLeast(0))
    bench.client.groups.membership.tell({ assigned: [bench.client.claim(0)] })
    const consumer = await openGroupConsumer(bench.client.context, { topic: bench.client.topic, group: "g" })
    bench.replace(1, atLeast(7))
    bench.put(0, 10, 1)
    bench.client.groups.membership.tell({ assigned: [bench.client.claim(1)] })
    await bench.client.settle()
    assert.deepEqual(await bench.numbers(consumer, 3), [7, 8, 9])
    await consumer.shutdown()
  })
})

describe("a filter that cannot be applied", () => {
  test("disabled, nothing is read, and the caller is told; enabled again, reading goes on", async () => {
    const bench = new Bench()
    bench.configure(atLeast(5))
    bench.put(0, 10)
    const consumer = await bench.open({ commitPolicy: { kind: "each" } })
    assert.deepEqual(await bench.numbers(consumer, 1), [5])
    bench.mutate({ type: "enable", revision: 1, enabled: false })
    await bench.noticed()
    const error = await bench.failure(consumer)
    assert.ok(error instanceof InvalidError)
    assert.equal(error.context.reason, "revision_disabled")
    await assert.rejects(consumer.seek(0, "skip"), /nothing to skip/)
    await bench.nothingComes(consumer)
    bench.mutate({ type: "enable", revision: 1, enabled: true })
    await bench.noticed()
    assert.deepEqual(await bench.numbers(consumer, 4), [6, 7, 8, 9])
    await consumer.shutdown()
    assert.equal(bench.client.groupNext("g"), 10n)
    assert.equal(bench.client.clock.timers, 0)
  })

  test("disabled when a member comes, the member is told in place of its first message", async () => {
    const bench = new Bench()
    bench.configure(atLeast(5))
    bench.mutate({ type: "enable", revision: 1, enabled: false })
    bench.put(0, 10)
    const consumer = await bench.open()
    assert.ok((await bench.failure(consumer)) instanceof InvalidError)
    await consumer.shutdown()
    assert.equal(bench.client.groupNext("g"), undefined)
  })

  test("changed by a newer version, nothing is read rather than the wrong thing", async () => {
    const bench = new Bench()
    bench.configure(atLeast(5))
    bench.put(0, 10)
    const consumer = await bench.open()
    bench.mutate({ type: "release" }, (event) => event.replace('"version":1', '"version":2'))
    await bench.noticed()
    const error = await bench.failure(consumer)
    assert.ok(error instanceof UnsupportedError)
    assert.equal(error.context.reason, "version_skew")
    await consumer.shutdown()
  })

  test("a stored text that is no filter here blocks reading", async () => {
    const bench = new Bench()
    bench.mutate({ type: "configure", text: '{"where":{"path":"n","op":"newer","value":1}}' })
    bench.put(0, 10)
    const consumer = await bench.open()
    const error = await bench.failure(consumer)
    assert.ok(error instanceof UnsupportedError)
    assert.equal(error.context.reason, "unsupported")
    await consumer.shutdown()
  })

  test("a record that it cannot decode stops the partition in place, and skip goes past it", async () => {
    const bench = new Bench()
    bench.configure(atLeast(0))
    bench.put(0, 2)
    bench.client.log.put(bench.client.place(), [{ payload: new TextEncoder().encode("{") }])
    bench.put(3, 5)
    const consumer = await bench.open()
    assert.deepEqual(await bench.numbers(consumer, 2), [0, 1])
    const error = await bench.failure(consumer)
    assert.ok(error instanceof DecodeError)
    assert.equal(error.context.offset, 2n)
    await consumer.seek(0, "skip")
    assert.deepEqual(await bench.numbers(consumer, 2), [3, 4])
    await consumer.shutdown()
    assert.equal(bench.client.groupNext("g"), 5n)
  })
})
