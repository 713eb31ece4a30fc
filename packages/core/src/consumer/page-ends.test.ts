import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import type { Consumer } from "./consumer.ts"
import { FakeClient, take } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, commitPolicy: CommitPolicy): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, { commitPolicy })
}

for (const policy of ["polling", "all"] as const) {
  describe(`a page that ends because nothing more is there (${policy})`, () => {
    test("is stored for a loop", async () => {
      const client = new FakeClient()
      client.put(0, 3)
      const consumer = open(client, { kind: policy })
      await take(consumer, 3)
      const waiting = consumer.next()
      await client.settle()
      assert.equal(client.storedNext("worker"), 3n)
      await consumer.shutdown()
      await waiting
    })

    test("is stored for several loops of one consumer", async () => {
      const client = new FakeClient()
      const consumer = open(client, { kind: policy })
      const loop = async (): Promise<void> => {
        for await (const _ of consumer);
      }
      const loops = Promise.all([loop(), loop(), loop()])
      await client.settle()
      for (let n = 0; n < 5; n++) {
        client.put(n, n + 1)
        await client.settle()
        assert.equal(client.storedNext("worker"), BigInt(n + 1))
      }
      await consumer.shutdown()
      await loops
    })

    test("is stored for handlers of run", async () => {
      const client = new FakeClient()
      client.put(0, 5)
      const consumer = open(client, { kind: policy })
      const running = consumer.run(async () => {}, { concurrency: 2 })
      await client.settle()
      assert.equal(client.storedNext("worker"), 5n)
      client.put(5, 6)
      await client.settle()
      assert.equal(client.storedNext("worker"), 6n)
      await consumer.shutdown()
      await running
    })
  })
}

describe("with auto after delivery", () => {
  for (const every of ["message", 2] as const) {
    test(`what is handed out counts at once (every ${every})`, async () => {
      const client = new FakeClient()
      client.put(0, 9)
      const consumer = open(client, { kind: "auto", after: "delivery", every, intervalMs: false })
      await take(consumer, 4)
      await client.settle()
      assert.equal(client.storedNext("worker"), 4n)
      await consumer.shutdown()
    })
  }
})
