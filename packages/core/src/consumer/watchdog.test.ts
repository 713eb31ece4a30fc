/** A consumer that has fallen silent, or whose event loop stood still, says so. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError } from "@millrace/contract"
import { openGroupConsumer } from "../group/group-consumer.ts"
import type { Message } from "../record/message.ts"
import type { Consumer } from "./consumer.ts"
import type { LoopBlock, Stall } from "./consumer-events.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions): { consumer: Consumer; stalls: Stall[] } {
  const consumer = openConsumer(client.context, { topic: client.topic, name: "c", partition: 0 }, options)
  const stalls: Stall[] = []
  consumer.on({ stalled: (stall) => void stalls.push(stall) })
  return { consumer, stalls }
}

describe("a reader that hangs", () => {
  test("is reported with the place and the time, and replaced; nothing is lost or read twice (A-05)", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const { consumer, stalls } = open(client)
    await take(consumer, 3)
    for (const reader of client.log.readers) reader.deaf = true
    const waiting = consumer.next()
    await client.settle()
    client.put(3, 9)
    await client.clock.advance(20_000)
    assert.equal(stalls.length, 1)
    const { forMs, ...stall } = stalls[0] as Stall
    assert.deepEqual(stall, {
      stream: "s",
      topic: "t",
      partition: 0,
      position: 3n,
      head: 9n,
      doing: "reading",
      renewed: true,
    })
    assert.ok(forMs >= 5000 && forMs <= 10_000, `${forMs} ms`)
    assert.equal(textOf((await waiting).value as Message), "3")
    const messages = await take(consumer, 5)
    assert.deepEqual(messages.map(textOf), ["4", "5", "6", "7", "8"])
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
    assert.equal(client.log.readers.size, 0)
  })

  test("is found although the other partitions go on", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.groups.membership.tell({ assigned: [client.claim(0), client.claim(1)] })
    const consumer = await openGroupConsumer(client.context, { topic: client.topic, group: "g" })
    const stalls: Stall[] = []
    consumer.on({ stalled: (stall) => void stalls.push(stall) })
    client.put(0, 1, 0)
    client.put(0, 1, 1)
    await take(consumer, 2)
    client.log.silent.add(1)
    client.put(1, 2, 1)
    for (let second = 1; second <= 20 && stalls.length === 0; second++) {
      client.put(second, second + 1, 0)
      await take(consumer, 1)
      await client.clock.advance(1000)
    }
    assert.deepEqual(
      stalls.map(({ partition, position, head }) => ({ partition, position, head })),
      [{ partition: 1, position: 1n, head: 2n }],
    )
    await consumer.shutdown()
  })

  test("that stays silent is told of again after twice the time, each time with a fresh reader", async () => {
    const client = new FakeClient()
    const { consumer, stalls } = open(client)
    client.log.silent.add(0)
    client.put(0, 1)
    const waiting = consumer.next()
    await client.clock.advance(45_000)
    assert.deepEqual(
      stalls.map(({ forMs }) => forMs),
      [5000, 10_000, 20_000, 40_000].slice(0, stalls.length),
    )
    assert.ok(stalls.length >= 3)
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
    assert.equal(client.clock.timers, 0)
  })
})

describe("nobody is accused", () => {
  test("while nothing is there to read, and then hardly anything is asked", async () => {
    const client = new FakeClient()
    client.put(0, 2)
    const { consumer, stalls } = open(client)
    await take(consumer, 2)
    let asked = 0
    client.log.beforeLocate = async () => void asked++
    const waiting = consumer.next()
    await client.clock.advance(600_000)
    assert.deepEqual(stalls, [])
    assert.ok(asked >= 10 && asked <= 65, `asked ${asked} times in 10 minutes`)
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
  })

  test("and of many partitions some are asked for at a time: each that falls silent is found all the same", async () => {
    const many = Array.from({ length: 100 }, (_, partition) => partition)
    const client = new FakeClient({ partitions: 100 })
    client.groups.membership.tell({ assigned: many.map((one) => client.claim(one)) })
    const consumer = await openGroupConsumer(client.context, { topic: client.topic, group: "g" })
    const stalls: Stall[] = []
    consumer.on({ stalled: (stall) => void stalls.push(stall) })
    const waiting = consumer.next()
    const asked: number[] = []
    const watermarks = client.log.watermarks.bind(client.log)
    client.log.watermarks = (places) => {
      asked.push(places.length)
      return watermarks(places)
    }
    await client.clock.advance(600_000)
    assert.ok(asked.length >= 10 && Math.max(...asked) === 32, String(asked))
    assert.equal(stalls.length, 0)
    client.log.silent.add(77)
    client.put(0, 1, 77)
    await client.clock.advance(60_000)
    assert.deepEqual([...new Set(stalls.map(({ partition }) => partition))], [77])
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
    assert.equal(client.clock.timers, 0)
  })

  test("while the caller does not ask for anything", async () => {
    const client = new FakeClient()
    client.put(0, 9)
    const { consumer, stalls } = open(client)
    await take(consumer, 2)
    await client.clock.advance(600_000)
    assert.deepEqual(stalls, [])
    await consumer.shutdown()
  })

  test("while the partition is paused", async () => {
    const client = new FakeClient()
    client.put(0, 9)
    const { consumer, stalls } = open(client)
    await take(consumer, 2)
    consumer.pause()
    const waiting = consumer.next()
    await client.clock.advance(60_000)
    assert.deepEqual(stalls, [])
    consumer.resume()
    assert.equal(textOf((await waiting).value as Message), "2")
    await consumer.shutdown()
  })

  test("after a seek to the end, before anything comes there", async () => {
    const client = new FakeClient()
    client.put(0, 9)
    const { consumer, stalls } = open(client)
    await take(consumer, 2)
    await consumer.seek(0, { kind: "offset", value: 9n })
    const waiting = consumer.next()
    await client.clock.advance(120_000)
    assert.equal(stalls.length, 0)
    client.log.silent.add(0)
    client.put(9, 12)
    await client.clock.advance(20_000)
    assert.deepEqual(
      stalls.slice(0, 1).map(({ position, head }) => [position, head]),
      [[9n, 12n]],
    )
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
  })

  test("while the reader may wait for more records than there are", async () => {
    const client = new FakeClient()
    const { consumer, stalls } = open(client, { minRecords: 10, maxWaitMs: 30_000 })
    client.log.silent.add(0)
    client.put(0, 1)
    const waiting = consumer.next()
    await client.clock.advance(30_000)
    assert.deepEqual(stalls, [])
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
  })

  test("when the backend does not answer the question either", async () => {
    const client = new FakeClient()
    client.put(0, 1)
    const { consumer, stalls } = open(client)
    await take(consumer, 1)
    client.log.beforeLocate = () => new Promise(() => {})
    const waiting = consumer.next()
    await client.clock.advance(120_000)
    assert.deepEqual(stalls, [])
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
    assert.equal(client.clock.timers, 0)
  })
})

test("a store that holds up the next message is what stands in the way", async () => {
  const client = new FakeClient()
  client.put(0, 5)
  const { consumer, stalls } = open(client, { commitPolicy: { kind: "each" } })
  await take(consumer, 1)
  client.offsets.gate = new Promise(() => {})
  const waiting = consumer.next()
  await client.clock.advance(15_000)
  assert.deepEqual([stalls[0]?.doing, stalls[0]?.position, stalls[0]?.renewed], ["holding", 1n, false])
  waiting.catch(() => {})
  const ending = consumer.shutdown({ timeoutMs: 10 }).catch(() => {})
  await client.clock.advance(1000)
  await ending
})

test("under onRead a store that does not come to an end is what stands in the way", async () => {
  const client = new FakeClient()
  const { consumer, stalls } = open(client, { commitPolicy: { kind: "onRead" } })
  client.offsets.gate = new Promise(() => {})
  client.put(0, 5)
  const waiting = consumer.next()
  await client.clock.advance(15_000)
  assert.deepEqual([stalls[0]?.doing, stalls[0]?.position, stalls[0]?.renewed], ["holding", 0n, false])
  waiting.catch(() => {})
  const ending = consumer.shutdown({ timeoutMs: 10 }).catch(() => {})
  await client.clock.advance(1000)
  await ending
})

test("a partition that waits to be tried again is said to", async () => {
  const client = new FakeClient()
  client.put(0, 5)
  const { consumer, stalls } = open(client, { pollingRetryIntervalMs: 60_000 })
  const partition = client.log.find(client.place())
  assert.ok(partition !== undefined)
  partition.failure = new ConnectionError("no leader", { outcome: "rejected" })
  const waiting = consumer.next()
  await client.clock.advance(15_000)
  assert.deepEqual([stalls[0]?.doing, stalls[0]?.renewed], ["waiting", false])
  await consumer.shutdown()
  assert.equal((await waiting).done, true)
})

describe("an event loop that stands still", () => {
  test("is told with the time by which a timer came late", async () => {
    const client = new FakeClient()
    client.put(0, 1)
    const { consumer } = open(client)
    const blocks: LoopBlock[] = []
    consumer.on({ loopBlocked: (block) => void blocks.push(block) })
    await take(consumer, 1)
    await client.clock.advance(10_000)
    assert.deepEqual(blocks, [])
    block(client, 2500)
    await client.clock.advance(1000)
    assert.deepEqual(blocks, [{ delayMs: 2500, thresholdMs: 1000 }])
    await client.clock.advance(10_000)
    assert.equal(blocks.length, 1)
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("is told a member from a third of its session time-out on", async () => {
    const client = new FakeClient()
    client.groups.membership.tell({ assigned: [client.claim(0)] })
    const options = { sessionTimeoutMs: 9000 }
    const consumer = await openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)
    const blocks: LoopBlock[] = []
    consumer.on({ loopBlocked: (block) => void blocks.push(block) })
    await client.clock.advance(100)
    block(client, 2900)
    await client.clock.advance(1000)
    assert.deepEqual(blocks, [])
    block(client, 3100)
    await client.clock.advance(1000)
    assert.deepEqual(blocks, [{ delayMs: 3100, thresholdMs: 3000 }])
    await consumer.shutdown()
  })
})

/** All timers come so much later than they are due from now on: once, as those that are set again start from the late time. */
function block(client: FakeClient, ms: number): void {
  const before = client.clock.monotonicMs.bind(client.clock)
  client.clock.monotonicMs = () => before() + ms
}
