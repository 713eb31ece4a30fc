import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, InvalidError, NotFoundError, StorageError } from "@millrace/contract"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerEvents } from "./consumer-events.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

const worker = { kind: "consumer", name: "worker" } as const

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

/** A call that fails only once time has passed. */
async function failing(client: FakeClient, call: Promise<unknown>, ms = 0): Promise<unknown> {
  const outcome = call.then(
    () => undefined,
    (error) => error,
  )
  await client.clock.advance(ms)
  return outcome
}

const filled = (records: number): FakeClient => {
  const client = new FakeClient()
  for (let n = 0; n < records; n += 5) client.put(n, Math.min(n + 5, records))
  return client
}

test("a connection that is there again is told, until the consumer has ended", async () => {
  const client = filled(1)
  const consumer = open(client)
  const told: unknown[] = []
  consumer.on({ reconnected: (change) => told.push(change) })
  client.connection.notify({ state: "lost", server: "one:1", error: new ConnectionError("the connection was cut") })
  assert.deepEqual(told, [])
  client.connection.notify({ state: "restored", server: "two:2", afterMs: 70 })
  assert.deepEqual(told, [{ server: "two:2", afterMs: 70 }])
  await consumer.shutdown()
  client.connection.notify({ state: "restored", server: "one:1", afterMs: 5 })
  assert.equal(told.length, 1)
})

describe("a new history", () => {
  const told = (consumer: Consumer): unknown[] => {
    const changes: unknown[] = []
    consumer.on({ sourceChanged: (change) => changes.push(change) })
    return changes
  }

  test("after a purge: what was read ahead is void, the change is told, reading goes on at its start", async () => {
    const client = filled(20)
    const consumer = open(client)
    const changes = told(consumer)
    await take(consumer, 3)
    client.log.purge(client.place(), "b")
    client.put(100, 102)
    await client.settle()
    assert.deepEqual(changes, [{ ...client.place(), offset: 0n }])
    assert.deepEqual(textsOf(await take(consumer, 2)), ["100", "101"])
    await consumer.shutdown()
    assert.deepEqual(client.offsets.history.at(-1), { ...client.place(), offset: 2n, lineage: "b" })
  })

  test("progress of the old one is never stored for the new one", async () => {
    const client = filled(20)
    const consumer = open(client)
    await take(consumer, 15)
    client.log.purge(client.place(), "b")
    client.put(100, 102)
    await client.settle()
    await consumer.shutdown()
    assert.equal(client.offsets.history.length, 0)
  })

  test("nor is what the change finds handed out, whichever the policy is", async () => {
    const policies: CommitPolicy[] = [
      { kind: "auto", after: "delivery", every: "message" },
      { kind: "auto", after: "delivery" },
      { kind: "every", count: 2 },
      { kind: "each" },
      { kind: "all" },
    ]
    for (const commitPolicy of policies) {
      const client = filled(20)
      const consumer = open(client, { commitPolicy })
      await take(consumer, 14)
      // No store is under way: the next one goes out at once.
      await client.settle()
      client.log.purge(client.place(), "b")
      client.put(100, 130)
      await client.settle()
      const ofNew = client.offsets.history.filter(({ lineage }) => lineage === "b")
      assert.deepEqual(ofNew, [], `${JSON.stringify(commitPolicy)} stores for a history of which nothing was read`)
      assert.deepEqual(textsOf(await take(consumer, 1)), ["100"])
      await consumer.shutdown()
    }
  })

  test("after the topic was deleted: NotFoundError, and a new topic is read without a new consumer (A-29)", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 3)
    client.log.partitions.clear()
    client.log.wake()
    assert.ok((await failing(client, consumer.next())) instanceof NotFoundError)
    client.log.add(client.place()).lineage = "b"
    client.put(100, 101)
    const read = consumer.nextWithin(5000)
    await client.clock.advance(1000)
    assert.deepEqual(textsOf([await read]), ["100"])
    await consumer.shutdown()
  })

  test("with onMissing wait, looks again until there is a topic", async () => {
    const client = new FakeClient()
    client.log.partitions.clear()
    const consumer = open(client, { onMissing: "wait", pollingRetryIntervalMs: 200 })
    const read = consumer.nextWithin(60_000)
    await client.clock.advance(5000)
    client.log.add(client.place())
    client.put(0, 1)
    await client.clock.advance(200)
    assert.deepEqual(textsOf([await read]), ["0"])
    await consumer.shutdown()
  })
})

describe("failures", () => {
  test("of a poll that may pass are tried again after pollingRetryIntervalMs, without a word", async () => {
    const client = filled(3)
    client.log.pollFailures.push(new ConnectionError("away"), new ConnectionError("away"))
    const consumer = open(client, { pollingRetryIntervalMs: 300 })
    const read = consumer.nextWithin(5000)
    await client.clock.advance(599)
    assert.equal(client.log.polls, 0)
    await client.clock.advance(1)
    assert.deepEqual(textsOf([await read]), ["0"])
    await consumer.shutdown()
  })

  test("of a poll that will not pass are told, and the consumer goes on", async () => {
    const client = filled(3)
    client.log.pollFailures.push(new StorageError("broken"))
    const consumer = open(client)
    assert.ok((await failing(client, consumer.next())) instanceof StorageError)
    const read = consumer.nextWithin(5000)
    await client.clock.advance(1000)
    assert.deepEqual(textsOf([await read]), ["0"])
    await consumer.shutdown()
  })

  test("of a start are tried again as initRetries says, then told, then tried anew", async () => {
    const client = filled(3)
    let failures = 5
    client.log.beforeLocate = async () => {
      if (failures-- > 0) throw new StorageError("broken")
    }
    const consumer = open(client, { initRetries: { retries: 2, intervalMs: 100 }, pollingRetryIntervalMs: 1000 })
    let told = false
    const first = consumer.next().catch((error) => {
      told = true
      return error
    })
    await client.clock.advance(199)
    assert.equal(told, false)
    await client.clock.advance(1)
    assert.ok((await first) instanceof StorageError)
    const read = consumer.nextWithin(5000)
    await client.clock.advance(1200)
    assert.deepEqual(textsOf([await read]), ["0"])
    await consumer.shutdown()
  })

  test("a partition that the topic does not have is named with its range", async () => {
    const client = new FakeClient({ partitions: 4 })
    const consumer = openConsumer(client.context, { topic: client.topic, name: "worker", partition: 7 })
    await assert.rejects(
      consumer.next(),
      (error) =>
        error instanceof InvalidError &&
        error.message === 'partition 7 of topic "s/t" is out of range: the topic has 4 partitions (0 to 3)',
    )
    await consumer.shutdown()
  })

  test("a listener that throws, or rejects, fails the next read and nothing else", async () => {
    const client = filled(20)
    client.storeNext(worker, 6n)
    client.log.trim(client.place(), 10n)
    const consumer = open(client)
    const boom = new Error("boom")
    const heard: string[] = []
    const listeners: Partial<ConsumerEvents>[] = [
      {
        skipped: () => {
          throw boom
        },
      },
      { skipped: (async () => Promise.reject(boom)) as never },
      { skipped: () => void heard.push("third") },
    ]
    const handles = listeners.map((listener) => consumer.on(listener))
    for (let n = 0; n < 2; n++) {
      const error = (await failing(client, consumer.next())) as { kind?: string; cause?: unknown }
      assert.equal(error?.kind, "handler")
      assert.equal(error?.cause, boom)
    }
    assert.deepEqual(heard, ["third"])
    assert.deepEqual(textsOf(await take(consumer, 1)), ["10"])
    for (const handle of handles) handle[Symbol.dispose]()
    await consumer.shutdown()
  })
})
