import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, StorageError } from "@millrace/contract"
import fc from "fast-check"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take, textsOf } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import type { Message } from "../record/message.ts"
import type { CommitPolicy } from "./commit-policy.ts"

function open(client: FakeClient, commitPolicy: CommitPolicy, options?: ConsumerOptions): Consumer {
  const source = { topic: client.topic, name: "worker", partition: 0 }
  return openConsumer(client.context, source, { pollingRetryIntervalMs: 500, ...options, commitPolicy })
}

function filled(records: number): FakeClient {
  const client = new FakeClient()
  client.put(0, records)
  return client
}

/** What was stored, in order. */
function stores(client: FakeClient): bigint[] {
  return client.offsets.history.map(({ offset }) => offset)
}

describe("every", () => {
  test("stores when so many messages are handled since the last store", async () => {
    const client = filled(20)
    const consumer = open(client, { kind: "every", count: 3 })
    for (let n = 1; n <= 10; n++) {
      await take(consumer, 1)
      await client.settle()
      // The message in hand is not handled yet.
      assert.equal(client.storedNext("worker") ?? 0n, BigInt(Math.floor((n - 1) / 3) * 3))
    }
    await consumer.shutdown()
    assert.deepEqual(stores(client), [3n, 6n, 9n, 10n])
  })

  test("counts over batches and pages, and begins anew after a store of another kind", async () => {
    const client = new FakeClient()
    for (let n = 0; n < 12; n++) client.put(n, n + 1)
    const consumer = open(client, { kind: "every", count: 5 }, { batchLength: 2 })
    const messages = await take(consumer, 4)
    await consumer.commit(messages[3])
    await take(consumer, 6)
    await client.settle()
    assert.deepEqual(stores(client), [4n, 9n])
    await consumer.shutdown()
  })

  test("counts the messages of all partitions together", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 2, 0)
    client.put(0, 9, 1)
    client.groups.membership.tell({ assigned: [client.claim(0), client.claim(1)] })
    const commitPolicy = { kind: "every", count: 4 } as const
    const consumer = await openGroupConsumer(client.context, { topic: client.topic, group: "g" }, { commitPolicy })
    await take(consumer, 5)
    await client.settle()
    assert.equal((client.groupNext("g", 0) ?? 0n) + (client.groupNext("g", 1) ?? 0n), 4n)
    await consumer.shutdown()
  })
})

describe("interval", () => {
  const interval = { kind: "interval", intervalMs: 1000 } as const

  test("stores what is handled at its end, also of the middle of a window, and while nothing comes", async () => {
    const client = filled(10)
    const consumer = open(client, interval)
    await take(consumer, 4)
    await client.clock.advance(999)
    assert.equal(client.storedNext("worker"), undefined)
    await client.clock.advance(1)
    assert.equal(client.storedNext("worker"), 3n)
    await take(consumer, 6)
    const waiting = consumer.next()
    await client.clock.advance(1000)
    assert.deepEqual(stores(client), [3n, 10n])
    await consumer.shutdown()
    await waiting
  })

  test("offset 0 is stored at its end", async () => {
    const client = filled(1)
    const consumer = open(client, interval)
    await take(consumer, 1)
    const waiting = consumer.next()
    await client.clock.advance(1000)
    assert.equal(client.storedNext("worker"), 1n)
    await consumer.shutdown()
    await waiting
  })

  test("nothing is stored twice, and an idle consumer keeps no timer of it", async () => {
    const client = filled(3)
    const consumer = open(client, interval)
    await take(consumer, 3)
    const waiting = consumer.next()
    await client.clock.advance(1000)
    const timers = client.clock.timers
    await client.clock.advance(60_000)
    assert.deepEqual(stores(client), [3n])
    const idle = open(client, { kind: "polling" })
    const other = idle.next()
    await client.settle()
    assert.equal(client.clock.timers, timers * 2, "as many as without an interval")
    await idle.shutdown()
    client.put(3, 4)
    await waiting
    await consumer.shutdown()
    await other
    assert.equal(client.clock.timers, 0)
  })

  test("goes on after a store that failed", async () => {
    const client = filled(9)
    const consumer = open(client, interval)
    client.offsets.failures.push(new StorageError("broken"))
    await take(consumer, 3)
    await client.clock.advance(1000)
    await assert.rejects(consumer.nextWithin(10), StorageError)
    await client.clock.advance(1000)
    assert.deepEqual(stores(client), [3n])
    await consumer.shutdown()
  })

  test("a caller that takes its first message long after it was read is stored in time all the same", async () => {
    const client = filled(9)
    const consumer = open(client, interval)
    await consumer.seek(0, { kind: "first" })
    await client.clock.advance(10_000)
    await take(consumer, 5)
    await client.clock.advance(1000)
    assert.equal(client.storedNext("worker"), 4n)
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("beside another moment, whichever comes first", async () => {
    for (const [policy, atPage, atEnd] of [
      [{ kind: "intervalOrPolling", intervalMs: 1000 }, 4n, 5n],
      [{ kind: "intervalOrAll", intervalMs: 1000 }, 4n, 5n],
      [{ kind: "intervalOrEvery", intervalMs: 1000, count: 2 }, 4n, 5n],
      [{ kind: "intervalOrEach", intervalMs: 1000 }, 5n, 5n],
    ] as const) {
      const client = filled(20)
      const consumer = open(client, policy, { batchLength: 4 })
      await take(consumer, policy.kind === "intervalOrEach" ? 6 : 5)
      await client.settle()
      assert.equal(client.storedNext("worker"), atPage, policy.kind)
      if (policy.kind !== "intervalOrEach") await take(consumer, 1)
      await client.clock.advance(1000)
      assert.equal(client.storedNext("worker"), atEnd, policy.kind)
      await consumer.shutdown()
      assert.equal(client.clock.timers, 0)
    }
  })
})

describe("auto", () => {
  test("after processing: every 10,000 messages or 5 s, unless told otherwise", async () => {
    const client = filled(10_010)
    const consumer = open(client, { kind: "auto" }, { prefetchRecords: 20_000 })
    await take(consumer, 10_001)
    await client.settle()
    assert.deepEqual(stores(client), [10_000n])
    await take(consumer, 3)
    await client.clock.advance(5000)
    assert.deepEqual(stores(client), [10_000n, 10_003n])
    await consumer.shutdown()
  })

  test("after delivery: what is handed out counts", async () => {
    const client = filled(10)
    const consumer = open(client, { kind: "auto", after: "delivery", every: 2, intervalMs: false })
    await take(consumer, 2)
    // The window's end is told by the next call, or by whoever asks how far things are.
    assert.equal(consumer.lastConsumedOffset(), 1n)
    await client.settle()
    assert.equal(client.storedNext("worker"), 2n)
    await take(consumer, 1)
    await assert.rejects(async () => {
      await using _scope = consumer
      throw new Error("boom")
    })
    assert.equal(client.storedNext("worker"), 3n, "whatever became of it")
  })

  test("after marked: only marks count, whatever else was asked for", async () => {
    const client = filled(10)
    const consumer = open(client, { kind: "auto", after: "marked", every: 2, intervalMs: false })
    const messages = (await take(consumer, 6)) as [Message, Message, Message, Message, Message, Message]
    await client.settle()
    assert.deepEqual(stores(client), [])
    consumer.mark(messages[1])
    consumer.mark(messages[3])
    await client.settle()
    assert.deepEqual(stores(client), [], "message 0 is not handled")
    consumer.mark(messages[0].checkpoint())
    await client.settle()
    assert.deepEqual(stores(client), [2n])
    consumer.mark(messages[2])
    await consumer.shutdown()
    assert.deepEqual(stores(client), [2n, 4n], "4 and 5 come again")
  })

  test("each page", async () => {
    const client = filled(10)
    const consumer = open(client, { kind: "auto", every: "batch", intervalMs: false }, { batchLength: 4 })
    await take(consumer, 9)
    await client.settle()
    assert.deepEqual(stores(client), [4n, 8n])
    await consumer.shutdown()
  })

  test("each message, in the background", async () => {
    const client = filled(10)
    const consumer = open(client, { kind: "auto", every: "message", intervalMs: false })
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    assert.deepEqual(textsOf(await take(consumer, 4)), ["0", "1", "2", "3"], "it does not wait for the store")
    store.resolve()
    await client.settle()
    assert.deepEqual(stores(client), [1n, 3n])
    await consumer.shutdown()
  })
})

describe("an outage when the consumer ends", () => {
  test("is waited for as long as the shutdown may take", async () => {
    const client = filled(10)
    const consumer = open(client, { kind: "every", count: 100 })
    await take(consumer, 4)
    client.offsets.failures.push(new ConnectionError("away"), new ConnectionError("away"))
    const ended = consumer.shutdown()
    await client.clock.advance(1000)
    await ended
    assert.equal(client.storedNext("worker"), 4n)
    assert.equal(client.clock.timers, 0)
  })
})

describe("whatever the policy", () => {
  const policies: readonly CommitPolicy[] = [
    { kind: "polling" },
    { kind: "all" },
    { kind: "each" },
    { kind: "every", count: 3 },
    { kind: "interval", intervalMs: 50 },
    { kind: "intervalOrPolling", intervalMs: 50 },
    { kind: "intervalOrAll", intervalMs: 50 },
    { kind: "intervalOrEach", intervalMs: 50 },
    { kind: "intervalOrEvery", intervalMs: 50, count: 3 },
    { kind: "auto", every: 2, intervalMs: 80 },
  ]
  for (const policy of policies) {
    test(`${policy.kind}: a crash repeats at most what was handled since the last store, and loses nothing`, async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 5 }),
          fc.array(fc.oneof(fc.constant("read" as const), fc.constant("wait" as const)), { maxLength: 20 }),
          fc.integer({ min: 1, max: 4 }),
          async (batches, steps, batchLength) => {
            const client = new FakeClient()
            let end = 0
            for (const count of batches) {
              client.put(end, end + count)
              end += count
            }
            const consumer = open(client, policy, { batchLength })
            let handed = 0
            for (const step of steps) {
              if (step === "wait") await client.clock.advance(60)
              else if (handed < end) handed += (await take(consumer, 1)).length
              assert.ok(
                (client.storedNext("worker") ?? 0n) <= BigInt(Math.max(0, handed - 1)),
                "the message in hand is not handled",
              )
            }
            await client.settle()
            const next = client.storedNext("worker") ?? 0n
            const again = open(client, { kind: "disabled" })
            client.put(end, end + 1)
            assert.deepEqual(textsOf(await take(again, 1)), [String(next)])
            await again.shutdown()
            await consumer.shutdown()
            if (handed > 0) assert.equal(client.storedNext("worker"), BigInt(handed), "a clean end stores all of it")
            assert.equal(client.clock.timers, 0)
          },
        ),
        { numRuns: 30 },
      )
    })
  }
})
