import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError, StorageError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take, textsOf } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

function filled(records: number): FakeClient {
  const client = new FakeClient()
  client.put(0, records)
  return client
}

const every = { kind: "every", count: 100 } as const

describe("what storeOffset stores", () => {
  test("stands against what was handled before", async () => {
    const client = filled(9)
    const consumer = open(client, { commitPolicy: every })
    const messages = await take(consumer, 5)
    consumer.mark(messages[4] ?? assert.fail())
    await consumer.storeOffset(1n)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 2n)
  })

  test("is left behind by the next message that is handled, also in a replay", async () => {
    for (const kind of ["each", "polling", "all"] as const) {
      const client = filled(9)
      const consumer = open(client, { commitPolicy: { kind } })
      await take(consumer, 4)
      await consumer.storeOffset(0n, 0, { resetPosition: true })
      assert.deepEqual(textsOf(await take(consumer, 2)), ["1", "2"])
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 3n, kind)
    }
  })

  test("comes before what is handled while it is on its way, and a commit does not go back behind that", async () => {
    const client = filled(9)
    const consumer = open(client, { commitPolicy: { kind: "every", count: 2 } })
    const messages = await take(consumer, 6)
    await client.settle()
    const { promise, resolve } = Promise.withResolvers<void>()
    client.offsets.gate = promise
    const placing = consumer.storeOffset(0n)
    await take(consumer, 3)
    resolve()
    await placing
    await client.settle()
    assert.equal(client.storedNext("worker"), 8n)
    await consumer.commit(messages[2])
    await consumer.shutdown()
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [2n, 4n, 1n, 8n, 9n],
    )
  })

  test("loses nothing that was handled while it was on its way", async () => {
    for (const policy of [every, { kind: "interval", intervalMs: 1000 } as const]) {
      const client = filled(9)
      const consumer = open(client, { commitPolicy: policy })
      await take(consumer, 4)
      const { promise, resolve } = Promise.withResolvers<void>()
      client.offsets.gate = promise
      const placing = consumer.storeOffset(0n)
      await take(consumer, 3)
      assert.equal(consumer.lastConsumedOffset(), 6n)
      resolve()
      await placing
      assert.equal(client.storedNext("worker"), 1n)
      await consumer[Symbol.asyncDispose]()
      assert.equal(client.storedNext("worker"), 6n)
    }
  })

  test("changes nothing when it fails", async () => {
    const client = filled(9)
    const consumer = open(client, { commitPolicy: every })
    const messages = await take(consumer, 5)
    await consumer.commit(messages[4])
    client.offsets.failures.push(new StorageError("broken"))
    await assert.rejects(consumer.storeOffset(0n), StorageError)
    await consumer.commit(messages[1])
    assert.equal(client.storedNext("worker"), 5n)
    await consumer.shutdown()
  })

  test("with resetPosition before the first read, reading begins behind it whatever startAt says", async () => {
    const client = filled(9)
    const consumer = open(client, { startAt: { kind: "first" }, allowReplay: true })
    await consumer.storeOffset(5n, 0, { resetPosition: true })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["6"])
    await consumer.shutdown()
  })
})

describe("deleteOffset", () => {
  test("stands until anything more is handled, also in a replay", async () => {
    const client = filled(9)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    await take(consumer, 5)
    await client.settle()
    await consumer.deleteOffset()
    await consumer.seek(0, { kind: "first" })
    await take(consumer, 2)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 2n)
  })
})

test("onRead: an orderly end goes back though the caller's own store failed", async () => {
  const client = filled(9)
  const consumer = open(client, { commitPolicy: { kind: "onRead" } })
  await take(consumer, 2)
  client.offsets.failures.push(new StorageError("broken"))
  await assert.rejects(consumer.storeOffset(0n), StorageError)
  await consumer.shutdown()
  assert.equal(client.storedNext("worker"), 2n)
})

test("storedOffset and lag answer while stores fail", async () => {
  const client = filled(9)
  const consumer = open(client, { commitPolicy: { kind: "each" }, pollingRetryIntervalMs: 500 })
  await take(consumer, 1)
  for (let n = 0; n < 50; n++) client.offsets.failures.push(new StorageError("full", { retryable: true }))
  const waiting = consumer.next()
  await client.settle()
  assert.equal(await consumer.storedOffset(), undefined)
  assert.equal((await consumer.lag())[0]?.lag, 8n)
  client.offsets.failures.length = 0
  await client.clock.advance(500)
  await waiting
  assert.equal(client.storedNext("worker"), 1n)
  await assert.rejects(consumer.storeOffset(-1n), InvalidError)
  await consumer.shutdown()
})
