import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, InvalidError, MillraceError, StorageError } from "@millrace/contract"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

const worker = { kind: "consumer", name: "worker" } as const

function open(client: FakeClient, options?: ConsumerOptions, name: string | undefined = "worker"): Consumer {
  return openConsumer(client.context, { topic: client.topic, name, partition: 0 }, options)
}

function openUnnamed(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: undefined, partition: 0 }, options)
}

const filled = (records: number): FakeClient => {
  const client = new FakeClient()
  client.put(0, records)
  return client
}

describe("markers that come later", () => {
  test("move the progress of an automatic policy", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 3)
    const waiting = consumer.next()
    await client.settle()
    client.log.putMarkers(client.place(), 4)
    await client.settle()
    await consumer.shutdown()
    await waiting
    assert.equal(client.storedNext("worker"), 7n)
  })

  test("while the last message is open, they wait for it", async () => {
    const client = filled(3)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 3)
    client.log.putMarkers(client.place(), 4)
    await client.settle()
    await consumer.commit(messages[1])
    assert.equal(client.storedNext("worker"), 2n)
    await consumer.commit(messages[2])
    assert.equal(client.storedNext("worker"), 7n)
    await consumer.shutdown()
  })
})

describe("direct control of offsets", () => {
  test("storeOffset acknowledges a record, and a restart begins behind it", async () => {
    const client = filled(9)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    await consumer.storeOffset(0n)
    assert.equal(client.storedNext("worker"), 1n)
    await take(consumer, 1)
    await consumer.storeOffset(5n)
    assert.equal(client.storedNext("worker"), 6n)
    assert.equal(consumer.lastStoredOffset(), 5n)
    await consumer.storeOffset(2n)
    assert.equal(client.storedNext("worker"), 3n)
    await consumer.shutdown()
    const again = open(client)
    assert.deepEqual(textsOf(await take(again, 1)), ["3"])
    await again.shutdown()
  })

  test("resetPosition goes on reading behind it, forward and back", async () => {
    const client = filled(9)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    await take(consumer, 2)
    await consumer.storeOffset(5n, 0, { resetPosition: true })
    assert.deepEqual(textsOf(await take(consumer, 2)), ["6", "7"])
    await consumer.storeOffset(0n, 0, { resetPosition: true })
    assert.deepEqual(textsOf(await take(consumer, 3)), ["1", "2", "3"])
    await consumer.shutdown()
  })

  test("an automatic policy does not take it back", async () => {
    const client = filled(9)
    const consumer = open(client)
    await take(consumer, 2)
    await consumer.storeOffset(7n)
    await take(consumer, 2)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 8n)
  })

  test("deleteOffset forgets, and a restart begins at the first record", async () => {
    const client = filled(3)
    client.storeNext(worker, 2n)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["2"])
    await consumer.deleteOffset()
    assert.equal(await consumer.storedOffset(), undefined)
    assert.equal(consumer.lastStoredOffset(), undefined)
    await consumer.shutdown()
    const again = open(client)
    assert.deepEqual(textsOf(await take(again, 1)), ["0"])
    await again.shutdown()
  })

  test("storedOffset speaks of the last handled record and the newest one, after the stores under way", async () => {
    const client = filled(10)
    const consumer = open(client, { batchLength: 4 })
    assert.equal(await consumer.storedOffset(), undefined)
    await take(consumer, 5)
    assert.deepEqual(await consumer.storedOffset(0), { stored: 3n, current: 9n })
    assert.equal(consumer.lastStoredOffset(0), 3n)
    assert.equal(consumer.lastConsumedOffset(0), 4n)
    await consumer.shutdown()
  })

  test("offsets and partitions that cannot be are refused", async () => {
    const consumer = open(filled(1))
    await assert.rejects(consumer.storeOffset(-1n), InvalidError)
    await assert.rejects(consumer.storeOffset(5 as never), InvalidError)
    await assert.rejects(consumer.storeOffset(1n << 63n), InvalidError)
    await assert.rejects(consumer.storeOffset(1n, 3), InvalidError)
    await consumer.shutdown()
  })
})

describe("without a name", () => {
  test("nothing can be stored, and the error says why", async () => {
    const client = filled(4)
    const consumer = openUnnamed(client)
    const [message] = await take(consumer, 2)
    for (const call of [
      () => consumer.commit(message),
      () => consumer.storeOffset(1n),
      () => consumer.deleteOffset(),
      () => consumer.storedOffset(),
    ]) {
      await assert.rejects(
        call(),
        (error) => error instanceof InvalidError && /needs a consumer name/.test(error.message),
      )
    }
    assert.equal(consumer.lastConsumedOffset(), 1n)
    assert.equal((await consumer.lag())[0]?.lag, 2n)
    await consumer.shutdown()
    assert.equal(client.offsets.history.length, 0)
  })

  test("two of them do not meet", async () => {
    const client = filled(2)
    const [one, other] = [openUnnamed(client), openUnnamed(client)]
    assert.deepEqual(textsOf(await take(one, 2)), ["0", "1"])
    assert.deepEqual(textsOf(await take(other, 2)), ["0", "1"])
    await one.shutdown()
    await other.shutdown()
  })

  test("a policy that stores is refused", () => {
    assert.throws(() => openUnnamed(filled(1), { commitPolicy: { kind: "each" } }), /needs a consumer name/)
  })
})

describe("faults do not escape (A-28)", () => {
  test("stores and polls that fail leave no rejection unobserved", async () => {
    const rejections: unknown[] = []
    const observe = (reason: unknown): void => void rejections.push(reason)
    process.on("unhandledRejection", observe)
    try {
      for (let round = 0; round < 50; round++) {
        const client = filled(20)
        client.offsets.failures.push(new StorageError("broken"), new ConnectionError("away"))
        client.log.pollFailures.push(new ConnectionError("away"), new StorageError("broken"))
        const consumer = open(client, {
          batchLength: 1 + (round % 5),
          commitPolicy: { kind: round % 2 ? "each" : "polling" },
        })
        const calls = Array.from({ length: 5 }, () => consumer.next().catch((error) => error))
        await client.clock.advance(round * 37)
        const ended = consumer.shutdown().catch((error) => error)
        await client.clock.advance(10_000)
        for (const outcome of await Promise.all([...calls, ended])) {
          assert.ok(outcome === undefined || outcome instanceof MillraceError || "done" in outcome)
        }
        assert.equal(client.clock.timers, 0)
      }
      await new Promise((resolve) => setImmediate(resolve))
      assert.deepEqual(rejections, [])
    } finally {
      process.off("unhandledRejection", observe)
    }
  })
})
