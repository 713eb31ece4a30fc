import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, CorruptionError, InvalidError, NotAssignedError } from "@millrace/contract"
import { openGroupConsumer } from "../group/group-consumer.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

/** A member that was given the first `count` partitions. */
async function member(client: FakeClient, count: number, options?: ConsumerOptions): Promise<Consumer> {
  const opening = openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)
  const assigned = Array.from({ length: count }, (_, partition) => client.claim(partition))
  client.groups.membership.tell({ assigned })
  await client.settle()
  return opening
}

const numbers = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, n) => String(from + n))

function filled(records: number, size = 100): FakeClient {
  const client = new FakeClient()
  for (let n = 0; n < records; n += size) client.put(n, Math.min(n + size, records))
  return client
}

/** A call that is under way, and whether it has settled. */
function pending<V>(call: Promise<V>): { readonly call: Promise<V>; settled: boolean } {
  const state = { call, settled: false }
  call.then(
    () => (state.settled = true),
    () => (state.settled = true),
  )
  return state
}

describe("pause with a warm read-ahead (A-09)", () => {
  test("loses nothing, repeats nothing, keeps the order: 5,000 messages, paused in the second batch", async () => {
    const client = filled(5000)
    const consumer = open(client, { prefetchRecords: 2000, batchLength: 100 })
    const texts = textsOf(await take(consumer, 150))
    consumer.pause()
    const read = pending(consumer.next())
    await client.clock.advance(500)
    assert.equal(read.settled, false)
    consumer.resume()
    texts.push(...textsOf([(await read.call).value as never]))
    texts.push(...textsOf(await take(consumer, 5000 - 151)))
    assert.deepEqual(texts, numbers(0, 5000))
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 5000n)
  })

  test("in batches, from inside and outside of the loop", async () => {
    const client = filled(5000)
    const consumer = open(client, { prefetchRecords: 2000, batchLength: 100 })
    const texts: string[] = []
    let batches = 0
    const loop = (async () => {
      for await (const batch of consumer.batches()) {
        texts.push(...textsOf([...batch]))
        batches++
        if (batches === 2) consumer.pause()
        if (texts.length === 5000) return
      }
    })()
    await client.clock.advance(500)
    assert.equal(batches, 2)
    consumer.resume([0])
    await loop
    assert.deepEqual(texts, numbers(0, 5000))
    await consumer.shutdown()
  })

  test("pause, seek, resume costs no wait", async () => {
    const client = filled(5000)
    const consumer = open(client, { prefetchRecords: 2000, batchLength: 100 })
    await take(consumer, 150)
    consumer.pause()
    const moved = consumer.seek(0, { kind: "offset", value: 4000n })
    await client.settle()
    await moved
    const read = pending(consumer.next())
    await client.settle()
    assert.equal(read.settled, false, "a paused partition stays paused")
    consumer.resume()
    assert.deepEqual(textsOf([(await read.call).value as never]), ["4000"])
    assert.deepEqual(textsOf(await take(consumer, 999)), numbers(4001, 5000))
    assert.equal(client.clock.monotonicMs(), 0)
    await consumer.shutdown()
  })

  test("while a poll waits: what comes is kept, and handed out after resume", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 3)
    const read = pending(consumer.next())
    await client.settle()
    consumer.pause()
    client.put(3, 6)
    await client.clock.advance(60_000)
    assert.equal(read.settled, false)
    consumer.resume()
    assert.deepEqual(textsOf([(await read.call).value as never]), ["3"])
    await consumer.shutdown()
  })
})

describe("an answer that is on its way", () => {
  /** A consumer that has read 0 to 3, and an answer with 4 and 5 that comes when the gate opens. */
  async function onItsWay(): Promise<{ client: FakeClient; consumer: Consumer; arrive(): void }> {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 3)
    const read = consumer.next()
    await client.settle()
    const [reader] = client.log.readers
    assert.ok(reader !== undefined)
    const gate = Promise.withResolvers<void>()
    const next = reader.next.bind(reader)
    reader.next = async (limits) => {
      const answer = await next(limits)
      await gate.promise
      return answer
    }
    client.put(3, 4)
    await read
    await client.settle()
    client.put(4, 6)
    await client.settle()
    return { client, consumer, arrive: () => gate.resolve() }
  }

  test("when its partition is paused is kept, and handed out after resume", async () => {
    const { client, consumer, arrive } = await onItsWay()
    consumer.pause()
    const read = pending(consumer.next())
    arrive()
    await client.settle()
    assert.equal(read.settled, false)
    consumer.resume()
    assert.deepEqual(textsOf([(await read.call).value as never]), ["4"])
    assert.deepEqual(textsOf(await take(consumer, 1)), ["5"])
    await consumer.shutdown()
  })

  test("when its partition is moved is not handed out", async () => {
    const { client, consumer, arrive } = await onItsWay()
    const located = Promise.withResolvers<void>()
    client.log.beforeLocate = () => located.promise
    const moved = consumer.seek(0, { kind: "first" })
    const read = consumer.next()
    arrive()
    await client.settle()
    located.resolve()
    await moved
    assert.deepEqual(textsOf([(await read).value as never]), ["0"])
    await consumer.shutdown()
  })
})

describe("a paused partition", () => {
  test("is not polled, and the others go on", async () => {
    const client = new FakeClient({ partitions: 3 })
    for (let partition = 0; partition < 3; partition++) client.put(0, 10, partition)
    const consumer = await member(client, 3)
    await take(consumer, 1)
    consumer.pause([1])
    for (let partition = 0; partition < 3; partition++) client.put(10, 20, partition)
    const places: number[] = []
    for (const message of await take(consumer, 39)) places.push(message.position.partition)
    assert.ok(!places.includes(1))
    const read = pending(consumer.next())
    await client.settle()
    const [reader] = client.log.readers
    assert.deepEqual(
      reader?.sets.at(-1)?.map(({ partition }) => partition),
      [0, 2],
    )
    consumer.resume([1])
    await read.call
    assert.equal((await take(consumer, 19)).length, 19)
    await consumer.shutdown()
  })

  test("does not starve the others, though it holds all that may be read ahead", async () => {
    const client = new FakeClient({ partitions: 2 })
    for (let n = 0; n < 1000; n += 10) client.put(n, n + 10, 0)
    const consumer = await member(client, 2, { prefetchRecords: 100 })
    await take(consumer, 1)
    await client.settle()
    consumer.pause([0])
    await client.clock.advance(100)
    for (let n = 0; n < 500; n += 10) client.put(n, n + 10, 1)
    const messages = await take(consumer, 500)
    assert.ok(messages.every(({ position }) => position.partition === 1))
    await consumer.shutdown()
  })

  test("keeps its error until it is resumed", async () => {
    const client = filled(10, 5)
    client.log.find(client.place())?.damage.push({ offset: 5n, error: new CorruptionError("bad bytes") })
    const consumer = open(client)
    await take(consumer, 5)
    await client.settle()
    consumer.pause()
    const read = pending(consumer.next())
    await client.clock.advance(10_000)
    assert.equal(read.settled, false)
    consumer.resume()
    await assert.rejects(read.call, CorruptionError)
    await consumer.shutdown()
  })

  test("commits, stores and is shut down like any other", async () => {
    const client = filled(10)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 4)
    consumer.pause()
    await consumer.commit(messages[3])
    assert.equal(client.storedNext("worker"), 4n)
    await consumer.shutdown()
  })
})

describe("which partitions", () => {
  test("pause before the first read: nothing is read until resume", async () => {
    const client = filled(10)
    const consumer = open(client)
    consumer.pause()
    const read = pending(consumer.next())
    await client.clock.advance(10_000)
    assert.equal(read.settled, false)
    assert.equal(client.log.readers.size, 0)
    consumer.resume()
    assert.deepEqual(textsOf([(await read.call).value as never]), ["0"])
    await consumer.shutdown()
  })

  test("gained while all are paused: paused too", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 5, 0)
    client.put(0, 5, 1)
    const consumer = await member(client, 1)
    await take(consumer, 5)
    consumer.pause()
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    const read = pending(consumer.next())
    await client.settle()
    assert.equal(read.settled, false)
    consumer.resume()
    await read.call
    await consumer.shutdown()
  })

  test("gained after all were resumed: read like any other", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 5, 1)
    const consumer = await member(client, 1)
    consumer.pause()
    consumer.resume()
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    assert.equal((await take(consumer, 5)).length, 5)
    await consumer.shutdown()
  })

  test("lost and gained again: a pause of that one is over", async () => {
    const client = new FakeClient({ partitions: 1 })
    client.put(0, 5)
    const consumer = await member(client, 1)
    await take(consumer, 1)
    consumer.pause([0])
    client.groups.membership.tell({ lost: [client.claim(0)] })
    await client.settle()
    client.groups.membership.tell({ assigned: [client.claim(0)] })
    await client.settle()
    assert.equal((await take(consumer, 1)).length, 1)
    await consumer.shutdown()
  })

  test("that are not read are refused; repeating a call is not", async () => {
    const client = filled(10)
    const consumer = open(client)
    assert.throws(() => consumer.pause([3]), InvalidError)
    consumer.pause([0])
    consumer.pause([0])
    consumer.resume([0])
    consumer.resume()
    await take(consumer, 1)
    await consumer.shutdown()
    assert.throws(() => consumer.pause(), ClosedError)
    const group = await member(new FakeClient({ partitions: 2 }), 1)
    assert.throws(() => group.pause([1]), NotAssignedError)
    await group.shutdown()
  })
})
