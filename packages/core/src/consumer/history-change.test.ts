import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { OffsetOutOfRangeError } from "@millrace/contract"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, options: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

describe("progress of a history that is over", () => {
  const policies: readonly CommitPolicy[] = [
    { kind: "auto", after: "delivery", every: "message" },
    { kind: "auto", after: "delivery", every: 3 },
    { kind: "auto", after: "delivery", every: "batch" },
    { kind: "all" },
    { kind: "each" },
    { kind: "every", count: 3 },
    { kind: "polling" },
  ]
  for (const commitPolicy of policies) {
    test(`is never stored as progress of the next one: ${JSON.stringify(commitPolicy)}`, async () => {
      const client = new FakeClient()
      client.put(0, 9)
      const consumer = open(client, { commitPolicy, batchLength: 4 })
      await take(consumer, 6)
      client.log.purge(client.place(), "b")
      client.put(100, 103)
      await client.settle()
      assert.deepEqual(
        client.offsets.history.filter(({ lineage }) => lineage === "b"),
        [],
      )
      assert.deepEqual(textsOf(await take(consumer, 3)), ["100", "101", "102"])
      await consumer.shutdown()
      const last = client.offsets.history.at(-1)
      assert.deepEqual([last?.lineage, last?.offset], ["b", 3n])
    })
  }

  test("in parallel work, neither", async () => {
    const client = new FakeClient()
    client.put(0, 4)
    const consumer = open(client, { commitPolicy: { kind: "all" }, batchLength: 4 })
    const hanging = Promise.withResolvers<void>()
    const running = consumer.run(
      async (message) => {
        if (message.position.offset === 3n) await hanging.promise
      },
      { concurrency: 8, order: "none" },
    )
    await client.settle()
    client.put(4, 5)
    await client.settle()
    client.log.purge(client.place(), "b")
    client.put(100, 101)
    await client.settle()
    hanging.resolve()
    await client.settle()
    for (const { lineage, offset } of client.offsets.history) assert.ok(lineage === "a" || offset <= 1n)
    await consumer.shutdown()
    await running
  })
})

describe("a log that ends before the position", () => {
  test("goes back with something in hand and something read ahead", async () => {
    const client = new FakeClient()
    client.put(0, 9)
    const consumer = open(client, { onOutOfRange: "next", commitPolicy: { kind: "each" } })
    await take(consumer, 3)
    const partition = client.log.find(client.place())
    assert.ok(partition)
    partition.batches = []
    partition.end = 2n
    partition.failure = new OffsetOutOfRangeError("gone")
    client.log.wake()
    await client.settle()
    client.put(100, 102)
    await client.settle()
    assert.deepEqual(textsOf(await take(consumer, 2)), ["100", "101"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })
})
