import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CancelledError, ClosedError, InvalidError } from "@millrace/contract"
import type { Message } from "../record/message.ts"
import type { MessageBatch } from "../record/message-batch.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textOf, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

async function takeBatches(consumer: Consumer, count: number): Promise<MessageBatch[]> {
  const taken: MessageBatch[] = []
  for await (const batch of consumer.batches()) {
    taken.push(batch)
    if (taken.length === count) break
  }
  return taken
}

const ranges = (batches: readonly MessageBatch[]): string[] =>
  batches.map((batch) => `${batch.firstOffset}-${batch.lastOffset}`)
const stored = (client: FakeClient): bigint | undefined => client.offsets.history.at(-1)?.offset

describe("batches", () => {
  test("come whole, as they were stored, cut only at batchLength", async () => {
    const client = new FakeClient()
    client.put(0, 7)
    client.put(7, 8)
    client.put(8, 30)
    const consumer = open(client, { batchLength: 10 })
    const batches = await takeBatches(consumer, 5)
    assert.deepEqual(ranges(batches), ["0-6", "7-7", "8-17", "18-27", "28-29"])
    assert.deepEqual(textsOf([...(batches[1] as MessageBatch)]), ["7"])
    assert.equal(textOf((batches[2] as MessageBatch).message(9)), "17")
    assert.throws(() => (batches[1] as MessageBatch).message(1), InvalidError)
    await consumer.shutdown()
  })

  test("goes on in the middle of a batch of which messages were taken one by one", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client)
    await take(consumer, 3)
    assert.deepEqual(ranges(await takeBatches(consumer, 1)), ["3-9"])
    await consumer.shutdown()
  })

  test("a batch is handled when the next is asked for, and not before", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    client.put(5, 10)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const iterator = consumer.batches()[Symbol.asyncIterator]()
    let seen = 0
    for (let result = await iterator.next(); ; result = await iterator.next()) {
      await client.settle()
      assert.equal(stored(client) ?? 0n, BigInt(seen))
      seen += (result.value as MessageBatch).count
      if (seen === 10) break
    }
    await consumer.shutdown()
    assert.equal(stored(client), 10n)
  })

  test("a loop that is left early leaves its batch unhandled; commit() stores all of it", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    client.put(5, 10)
    const left = open(client)
    await takeBatches(left, 2)
    await left.shutdown()
    assert.equal(stored(client), 5n)
    const consumer = open(client)
    assert.deepEqual(ranges(await takeBatches(consumer, 1)), ["5-9"])
    await consumer.commit()
    assert.equal(stored(client), 10n)
    await consumer.shutdown()
  })

  test("a signal ends them, and so does the consumer's end", async () => {
    const client = new FakeClient()
    const consumer = open(client)
    const stop = new AbortController()
    const pending = consumer.batches({ signal: stop.signal })[Symbol.asyncIterator]().next()
    const rented = consumer.receiveRented({ signal: stop.signal })
    const cancelled = [assert.rejects(pending, CancelledError), assert.rejects(rented, CancelledError)]
    stop.abort()
    await Promise.all(cancelled)
    const last = consumer.batches()[Symbol.asyncIterator]().next()
    const ended = assert.rejects(consumer.receiveRented(), ClosedError)
    await consumer.shutdown()
    assert.equal((await last).done, true)
    await ended
  })
})

describe("a rented batch", () => {
  test("can be looked at until it is given back, and then not at all", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const consumer = open(client)
    let kept: Message | undefined
    let copied: Message | undefined
    const batch = await consumer.receiveRented()
    {
      using rented = batch
      assert.deepEqual(textsOf([...rented]), ["0", "1", "2"])
      kept = rented.message(1)
      assert.equal(textOf(kept), "1")
      copied = kept.copy()
    }
    const looks: ((message: Message) => unknown)[] = [
      (message) => message.payload,
      (message) => message.key,
      (message) => message.headers,
      (message) => message.position,
      (message) => message.timestampMicros,
      (message) => message.checkpoint(),
      (message) => message.copy(),
      (message) => message.toJSON(),
    ]
    for (const look of looks) assert.throws(() => look(kept as Message), /given back/)
    assert.throws(() => batch.message(0), /given back/)
    assert.throws(() => [...batch], /given back/)
    assert.equal(textOf(copied as Message), "1")
    assert.equal(batch.count, 3)
    batch[Symbol.dispose]()
    await consumer.shutdown()
  })

  test("that is never given back holds nothing up, and giving one back handles nothing", async () => {
    const client = new FakeClient()
    for (let n = 0; n < 40; n++) client.put(n * 10, n * 10 + 10)
    const consumer = open(client, { prefetchRecords: 20, commitPolicy: { kind: "each" } })
    for (let n = 0; n < 39; n++) {
      const batch = await consumer.receiveRented()
      assert.equal(batch.firstOffset, BigInt(n * 10))
    }
    using last = await consumer.receiveRented()
    await client.settle()
    last[Symbol.dispose]()
    await client.settle()
    assert.equal(stored(client), 390n)
    await consumer.shutdown()
  })
})
