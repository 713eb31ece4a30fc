import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CancelledError, ClosedError, InvalidError, TimeoutError } from "@millrace/contract"
import type { Message } from "../record/message.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textOf, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions, name: string | undefined = "worker"): Consumer {
  return openConsumer(client.context, { topic: client.topic, name, partition: 0 }, options)
}

const numbers = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, n) => String(from + n))

describe("reading", () => {
  test("hands out every record once, in order, over batches and pages", async () => {
    const client = new FakeClient()
    client.put(0, 7)
    client.put(7, 8)
    client.put(8, 30)
    const consumer = open(client, { batchLength: 4 })
    const messages = await take(consumer, 30)
    assert.deepEqual(textsOf(messages), numbers(0, 30))
    assert.deepEqual(
      messages.map((message) => message.position),
      numbers(0, 30).map((n) => ({ partition: 0, offset: BigInt(n) })),
    )
    await consumer.shutdown()
  })

  test("nothing is asked of the backend before the first read", async () => {
    const client = new FakeClient()
    open(client)
    await client.settle()
    assert.equal(client.log.readers.size, 0)
  })

  test("overlapping calls are served in order", async () => {
    const client = new FakeClient()
    const consumer = open(client)
    const calls = [consumer.next(), consumer.next(), consumer.next()]
    await client.settle()
    client.put(0, 3)
    const results = await Promise.all(calls)
    assert.deepEqual(
      results.map((result) => textOf(result.value as Message)),
      ["0", "1", "2"],
    )
    await consumer.shutdown()
  })

  test("a record that is larger than the read-ahead still comes", async () => {
    const client = new FakeClient()
    client.log.put(client.place(), [{ payload: new Uint8Array(5000) }])
    client.put(1, 3)
    const consumer = open(client, { prefetchBytes: 100, prefetchRecords: 1, maxBytes: 10 })
    const [large, ...rest] = await take(consumer, 3)
    assert.equal(large?.payload?.length, 5000)
    assert.deepEqual(textsOf(rest), ["1", "2"])
    await consumer.shutdown()
  })

  test("a slow caller does not make the consumer read ahead without bound", async () => {
    const client = new FakeClient()
    for (let n = 0; n < 100; n++) client.put(n * 10, n * 10 + 10)
    const consumer = open(client, { prefetchRecords: 20 })
    await take(consumer, 1)
    await client.settle()
    const before = client.log.polls
    await client.clock.advance(60_000)
    assert.equal(client.log.polls, before)
    assert.ok(before <= 4, `${before} polls for one message`)
    assert.equal((await take(consumer, 999)).length, 999)
    await consumer.shutdown()
  })

  test("waiting for records does not spin, and stops at shutdown (A-22)", async () => {
    const client = new FakeClient()
    const consumer = open(client, { maxWaitMs: 5000 })
    const pending = consumer.next()
    await client.clock.advance(60_000)
    assert.ok(client.log.polls <= 12, `${client.log.polls} polls in a minute`)
    await consumer.shutdown()
    assert.deepEqual(await pending, { done: true, value: undefined })
  })

  test("an answer that comes empty at once is not asked for again at once", async () => {
    const client = new FakeClient()
    client.log.answerEmptyAtOnce = true
    const consumer = open(client)
    const pending = consumer.next()
    await client.clock.advance(100)
    assert.ok(client.log.polls <= 101, `${client.log.polls} polls in 100 ms`)
    await consumer.shutdown()
    assert.equal((await pending).done, true)
  })

  test("pollIntervalMs is the pause after a poll that brought nothing", async () => {
    const client = new FakeClient()
    const consumer = open(client, { maxWaitMs: 100, pollIntervalMs: 900 })
    const pending = consumer.next()
    await client.clock.advance(10_000)
    assert.equal(client.log.polls, 10)
    await consumer.shutdown()
    await pending
  })

  test("partitionHead is the newest offset at the poll", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    const consumer = open(client)
    const [first] = await take(consumer, 1)
    assert.equal(first?.partitionHead, 4n)
    await consumer.shutdown()
  })
})

describe("nextWithin", () => {
  test("fails with TimeoutError at the deadline, and the message that comes later is the next call's", async () => {
    const client = new FakeClient()
    const consumer = open(client)
    const late = consumer.nextWithin(100)
    const failed = assert.rejects(late, (error) => error instanceof TimeoutError && /100 ms/.test(error.message))
    await client.clock.advance(99)
    await client.clock.advance(1)
    await failed
    const polls = client.log.polls
    client.put(0, 1)
    await client.settle()
    assert.equal(textOf(await consumer.nextWithin(100)), "0")
    assert.equal(client.log.polls, polls + 1, "the poll that outlived the deadline was kept")
    assert.equal(consumer.lastConsumedOffset(), 0n)
    await consumer.shutdown()
  })

  test("never acknowledges what the caller did not get", async () => {
    const client = new FakeClient()
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const failed = assert.rejects(consumer.nextWithin(10), TimeoutError)
    await client.clock.advance(10)
    await failed
    client.put(0, 3)
    await client.settle()
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), undefined)
  })

  test("its signal ends the wait, and leaves no timer behind", async () => {
    const client = new FakeClient()
    const consumer = open(client)
    const abort = new AbortController()
    const waiting = assert.rejects(consumer.nextWithin(1000, { signal: abort.signal }), CancelledError)
    await client.settle()
    abort.abort(new Error("enough"))
    await waiting
    await assert.rejects(consumer.nextWithin(1000, { signal: abort.signal }), CancelledError)
    client.put(0, 1)
    assert.equal(textOf(await consumer.nextWithin(1000)), "0")
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("a wait that is not a duration is refused", async () => {
    const consumer = open(new FakeClient())
    for (const wait of [-1, Number.NaN, 2 ** 31, "5" as never])
      await assert.rejects(consumer.nextWithin(wait), InvalidError)
  })

  test("after shutdown it fails with ClosedError, which is an InvalidError", async () => {
    const consumer = open(new FakeClient())
    await consumer.shutdown()
    await assert.rejects(
      consumer.nextWithin(10),
      (error) => error instanceof ClosedError && error instanceof InvalidError,
    )
  })
})

describe("iteration", () => {
  test("an aborted stream ends its loop with CancelledError, and what was handed out is handled", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client)
    const abort = new AbortController()
    const seen: string[] = []
    await assert.rejects(async () => {
      for await (const message of consumer.stream({ signal: abort.signal })) {
        seen.push(textOf(message))
        if (seen.length === 3) abort.abort()
      }
    }, CancelledError)
    assert.deepEqual(seen, ["0", "1", "2"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 3n)
  })

  test("a stream that waits is ended by its signal", async () => {
    const client = new FakeClient()
    const consumer = open(client)
    const abort = new AbortController()
    const ended = assert.rejects(async () => {
      for await (const _message of consumer.stream({ signal: abort.signal })) assert.fail("there is nothing")
    }, CancelledError)
    await client.settle()
    abort.abort()
    await ended
    await consumer.shutdown()
  })

  test("shutdown from the loop's own body does not deadlock; the rest is not delivered (A-04)", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const seen: string[] = []
    for await (const message of consumer) {
      seen.push(textOf(message))
      if (seen.length === 3) await consumer.shutdown()
    }
    assert.deepEqual(seen, ["0", "1", "2"])
    assert.equal(client.storedNext("worker"), 3n, "the message that was being handled follows the rule of shutdown")
  })

  test("break and then shutdown do not deadlock either, and leave the last message unhandled (A-04)", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client)
    for await (const message of consumer) if (textOf(message) === "2") break
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 2n)
  })

  test("a second loop goes on behind the first", async () => {
    const client = new FakeClient()
    client.put(0, 4)
    const consumer = open(client)
    for await (const message of consumer) if (textOf(message) === "1") break
    const seen: string[] = []
    for await (const message of consumer) {
      seen.push(textOf(message))
      if (seen.length === 2) break
    }
    assert.deepEqual(seen, ["2", "3"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 3n, "reading on made the message before handled")
  })

  test("an iterator that was left gives nothing more", async () => {
    const client = new FakeClient()
    client.put(0, 4)
    const consumer = open(client)
    const iterator = consumer[Symbol.asyncIterator]()
    await iterator.next()
    await iterator.return?.()
    assert.deepEqual(await iterator.next(), { done: true, value: undefined })
    await consumer.shutdown()
  })
})

describe("shutdown", () => {
  test("is idempotent, releases the client's hold, and leaves neither timers nor readers", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const consumer = open(client)
    await take(consumer, 2)
    const [first, second] = [consumer.shutdown(), consumer.shutdown()]
    assert.equal(first, second)
    await first
    assert.equal(client.owned.size, 0)
    assert.equal(client.log.readers.size, 0)
    assert.equal(client.clock.timers, 0)
    assert.deepEqual(await consumer.next(), { done: true, value: undefined })
    await assert.rejects(consumer.commit(), ClosedError)
  })

  test("before anything was read it does nothing", async () => {
    const client = new FakeClient()
    await open(client).shutdown()
    assert.equal(client.owned.size, 0)
  })

  test("waits for a store at most as long as it says, and releases everything even so", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const consumer = open(client)
    await take(consumer, 2)
    client.offsets.gate = new Promise(() => {})
    const ended = assert.rejects(
      consumer.shutdown(),
      (error) => error instanceof TimeoutError && /5000 ms/.test(error.message),
    )
    await client.clock.advance(5000)
    await ended
    assert.equal(client.owned.size, 0)
    assert.equal(client.log.readers.size, 0)
    assert.equal(client.clock.timers, 0)
  })

  test("leaving the scope of await using does not count the last message", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    {
      await using consumer = open(client)
      await take(consumer, 3)
    }
    assert.equal(client.storedNext("worker"), 2n)
  })

  test("closing the client shuts the consumer down without counting the last message", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    const consumer = open(client)
    await take(consumer, 3)
    for (const owned of client.owned) await owned.shutdown()
    assert.equal(client.storedNext("worker"), 2n)
    await assert.rejects(consumer.nextWithin(1), ClosedError)
  })
})
