import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, InvalidError, TimeoutError } from "@millrace/contract"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

function filled(records: number): FakeClient {
  const client = new FakeClient()
  client.put(0, records)
  return client
}

describe("a shutdown while a store hangs", () => {
  test("leaves no timer, and stores nothing more when the store fails after all", async () => {
    const client = filled(3)
    const consumer = open(client, { pollingRetryIntervalMs: 500 })
    await take(consumer, 2)
    const { promise, resolve } = Promise.withResolvers<void>()
    client.offsets.gate = promise
    client.offsets.failures.push(new ConnectionError("reset"))
    const ending = assert.rejects(consumer.shutdown({ timeoutMs: 1000 }), TimeoutError)
    await client.clock.advance(1000)
    await ending
    resolve()
    await client.settle()
    assert.equal(client.clock.timers, 0)
    await client.clock.advance(10_000)
    assert.deepEqual(client.offsets.history, [])
  })

  test("nothing that is asked for later reaches the store", async () => {
    const client = filled(9)
    const consumer = open(client, { batchLength: 3 })
    await take(consumer, 3)
    const { promise, resolve } = Promise.withResolvers<void>()
    client.offsets.gate = promise
    const ending = assert.rejects(consumer.shutdown({ timeoutMs: 1000 }), TimeoutError)
    await client.clock.advance(1000)
    await ending
    assert.deepEqual(await consumer.next(), { done: true, value: undefined })
    resolve()
    await client.settle()
    assert.equal(client.offsets.history.length, 1)
    assert.equal(client.clock.timers, 0)
  })

  test("takes no longer than its time, in all", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 2)
    const { promise, resolve } = Promise.withResolvers<void>()
    client.offsets.gate = promise
    for (const reader of client.log.readers) reader.close = () => promise
    const ending = assert.rejects(consumer.shutdown({ timeoutMs: 1000 }), /1000 ms on storing its progress/)
    await client.clock.advance(1000)
    await ending
    resolve()
    await client.settle()
  })
})

test("a shutdown's time is checked", async () => {
  const consumer = open(filled(1))
  await assert.rejects(consumer.shutdown({ timeoutMs: Number.NaN }), InvalidError)
  await assert.rejects(consumer.shutdown({ timeoutMs: -1 }), InvalidError)
  await consumer.shutdown({ timeoutMs: 0 })
})

describe("an iterator that is given up while a call waits", () => {
  for (const signal of [undefined, new AbortController().signal]) {
    test(`ends the call; the message goes to somebody else ${signal === undefined ? "" : "(with a signal)"}`, async () => {
      const client = new FakeClient()
      const consumer = open(client)
      const iterator = consumer.stream(signal === undefined ? undefined : { signal })[Symbol.asyncIterator]()
      const waiting = iterator.next()
      await client.settle()
      await iterator.return?.()
      assert.deepEqual(await waiting, { done: true, value: undefined })
      const other = consumer.nextWithin(1000)
      client.put(0, 1)
      assert.equal(textOf(await other), "0")
      await consumer.shutdown()
    })
  }
})
