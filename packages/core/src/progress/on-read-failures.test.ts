import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ClosedError,
  ConnectionError,
  HistoryChangedError,
  InvalidError,
  MillraceError,
  StorageError,
  TimeoutError,
} from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take, textsOf } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { ReadOperation } from "./read-operation.ts"

const worker = { kind: "consumer", name: "worker" } as const

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  const all = { commitPolicy: { kind: "onRead" }, pollingRetryIntervalMs: 500, ...options } as const
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, all)
}

function filled(records: number): FakeClient {
  const client = new FakeClient()
  client.put(0, records)
  return client
}

const cut = (): ConnectionError => new ConnectionError("cut off", { outcome: "unknown" })

/** Reads until the partition stops, and answers the operation that is in doubt. */
async function stopped(client: FakeClient, consumer: Consumer): Promise<ReadOperation> {
  client.offsets.failures.push(cut())
  const error = await consumer.nextWithin(1000).then(
    () => assert.fail("nothing may be handed out"),
    (failure: unknown) => failure,
  )
  assert.ok(error instanceof MillraceError && error.outcome === "unknown" && !error.retryable, String(error))
  const operation = ReadOperation.of(error)
  assert.ok(operation !== undefined, error.message)
  return operation
}

describe("a history that is over", () => {
  test("is found by the store, when the reader has read enough to look no more", async () => {
    const client = filled(6)
    const consumer = open(client, { prefetchRecords: 2 })
    const changes: unknown[] = []
    consumer.on({ sourceChanged: ({ offset }) => changes.push(offset) })
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    const read = consumer.nextWithin(60_000)
    await client.settle()
    client.log.purge(client.place(), "b")
    client.put(100, 102)
    await client.settle()
    client.offsets.failures.push(new HistoryChangedError("purged"))
    client.offsets.gate = undefined
    store.resolve()
    await client.clock.advance(1000)
    assert.deepEqual(textsOf([await read]), ["100"])
    assert.deepEqual(changes, [0n])
    await consumer.shutdown()
    assert.deepEqual([...new Set(client.offsets.history.map(({ lineage }) => lineage))], ["b"])
  })

  test("may be a mistake of the store: then what was read is stored again, and handed out", async () => {
    const client = filled(2)
    const consumer = open(client)
    client.offsets.failures.push(new HistoryChangedError("not yet here"))
    const read = consumer.nextWithin(60_000)
    await client.clock.advance(1000)
    assert.deepEqual(textsOf([await read]), ["0"])
    await consumer.shutdown()
  })
})

describe("moves that cross each other under onRead", () => {
  test("a seek that fails while something waits for its store: it is stored and handed out", async () => {
    const client = filled(2)
    const consumer = open(client)
    await take(consumer, 2)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    client.put(2, 4)
    await client.settle()
    const real = client.offsets.store.bind(client.offsets)
    client.offsets.store = (owner, entries) =>
      entries[0]?.offset === 1n ? Promise.resolve(entries.map(() => new StorageError("broken"))) : real(owner, entries)
    const failed = assert.rejects(consumer.seek(0, { kind: "offset", value: 1n }), StorageError)
    await client.settle()
    client.offsets.gate = undefined
    store.resolve()
    await failed
    assert.deepEqual(textsOf(await take(consumer, 2)), ["2", "3"])
    await consumer.shutdown()
  })

  test("two seeks, of which the later fails: reading goes on, and nothing comes twice", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 2)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    const first = consumer.seek(0, { kind: "offset", value: 6n })
    await client.settle()
    const second = consumer.seek(0, { kind: "offset", value: 8n })
    const failed = assert.rejects(second, StorageError)
    await client.settle()
    client.offsets.gate = undefined
    const real = client.offsets.store.bind(client.offsets)
    let calls = 0
    client.offsets.store = (owner, entries) =>
      ++calls === 1 ? Promise.resolve(entries.map(() => new StorageError("broken"))) : real(owner, entries)
    store.resolve()
    await first
    await failed
    const rest = textsOf(await take(consumer, 2))
    assert.ok(rest[0] === "2" || rest[0] === "6", `goes on at ${rest[0]}`)
    assert.ok((client.storedNext("worker") ?? 0n) >= BigInt(rest[1] as string) + 1n, "stored before it was handed out")
    await consumer.shutdown()
  })

  test("an abandoned partition stays so when the seek out of it fails", async () => {
    const client = filled(10)
    const consumer = open(client)
    consumer.abandon(await stopped(client, consumer))
    client.offsets.failures.push(new StorageError("broken"))
    await assert.rejects(consumer.seek(0, { kind: "offset", value: 6n }), StorageError)
    const waiting = consumer.next()
    await client.clock.advance(10_000)
    assert.equal(client.offsets.history.length, 0)
    await consumer.seek(0, { kind: "offset", value: 6n })
    assert.deepEqual(textsOf([(await waiting).value as never]), ["6"])
    await consumer.shutdown()
  })

  test("storeOffset that moves the position is not overtaken by a store of what was read", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 2)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    client.put(10, 12)
    await client.settle()
    const moved = consumer.storeOffset(4n, 0, { resetPosition: true })
    client.put(12, 14)
    await client.settle()
    client.offsets.gate = undefined
    client.offsets.history.length = 0
    store.resolve()
    await moved
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [12n, 5n],
    )
    assert.deepEqual(textsOf(await take(consumer, 1)), ["5"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 6n)
  })
})

describe("a store under onRead that fails", () => {
  test("is tried again when it may pass, and reading goes on by itself", async () => {
    const client = filled(3)
    client.offsets.failures.push(new ConnectionError("away"), new ConnectionError("away"))
    const consumer = open(client)
    const first = consumer.next()
    await client.clock.advance(999)
    assert.equal(client.storedNext("worker"), undefined)
    await client.clock.advance(1)
    assert.equal((await first).done, false)
    await consumer.shutdown()
  })

  test("is told when it will not pass, behind what was stored before, and tried again after that", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 1)
    const failure = new StorageError("broken")
    client.offsets.failures.push(failure)
    client.put(3, 5)
    await client.settle()
    assert.deepEqual(textsOf(await take(consumer, 2)), ["1", "2"])
    await assert.rejects(consumer.nextWithin(100), failure)
    const next = take(consumer, 2)
    await client.clock.advance(500)
    assert.deepEqual(textsOf(await next), ["3", "4"])
    await consumer.shutdown()
  })

  test("for a minute is told, and still tried", async () => {
    const client = filled(3)
    for (let n = 0; n < 125; n++) client.offsets.failures.push(new ConnectionError("away"))
    const consumer = open(client)
    const first = consumer.nextWithin(70_000)
    const failed = assert.rejects(first, ConnectionError)
    await client.clock.advance(61_000)
    await failed
    await client.clock.advance(5000)
    assert.deepEqual(textsOf(await take(consumer, 3)), ["0", "1", "2"])
    await consumer.shutdown()
  })
})

describe("a store under onRead whose outcome is unknown", () => {
  test("stops its partition until it is resolved: it had happened", async () => {
    const client = filled(3)
    const consumer = open(client)
    const operation = await stopped(client, consumer)
    assert.deepEqual({ ...operation }, { ...client.place(), through: 2n })
    const next = consumer.next()
    await client.clock.advance(30_000)
    assert.equal(client.offsets.history.length, 0, "it is not tried again by itself")
    client.storeNext(worker, 3n)
    assert.equal(await consumer.resolve(operation), true)
    assert.deepEqual(textsOf([(await next).value as never]), ["0"])
    assert.equal(client.offsets.history.length, 0)
    await assert.rejects(consumer.resolve(operation), /no such open operation/)
    await consumer.shutdown()
  })

  test("stops its partition until it is resolved: it had not happened", async () => {
    const client = filled(3)
    const consumer = open(client)
    const operation = await stopped(client, consumer)
    assert.equal(await consumer.resolve(operation), false)
    assert.deepEqual(textsOf(await take(consumer, 3)), ["0", "1", "2"])
    assert.equal(client.storedNext("worker"), 3n)
    await consumer.shutdown()
  })

  test("stops no other partition", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.groups.membership.tell({ assigned: [client.claim(0, "a"), client.claim(1, "b")] })
    const consumer = await openGroupConsumer(
      client.context,
      { topic: client.topic, group: "g" },
      { commitPolicy: { kind: "onRead" } },
    )
    client.put(0, 2, 0)
    const operation = await stopped(client, consumer)
    client.put(10, 12, 1)
    assert.deepEqual(textsOf(await take(consumer, 2)), ["10", "11"])
    assert.equal(await consumer.resolve(operation), false)
    assert.deepEqual(textsOf(await take(consumer, 2)), ["0", "1"])
    await consumer.shutdown()
  })

  test("is asked about until the backend answers, and the question stays open when it does not in time", async () => {
    const client = filled(3)
    const consumer = open(client)
    const operation = await stopped(client, consumer)
    client.offsets.beforeLoad = async () => {
      throw new ConnectionError("away")
    }
    const late = assert.rejects(
      consumer.resolve(operation, { timeoutMs: 2000 }),
      (error) => error instanceof TimeoutError && /within 2000 ms/.test(error.message),
    )
    await client.clock.advance(2000)
    await late
    const found = consumer.resolve(operation, { timeoutMs: 2000 })
    await client.clock.advance(700)
    client.offsets.beforeLoad = async () => {}
    await client.clock.advance(500)
    assert.equal(await found, false)
    await take(consumer, 3)
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("a backend that never answers is not waited for longer than said, nor longer than the consumer lives", async () => {
    const client = filled(3)
    const consumer = open(client)
    const operation = await stopped(client, consumer)
    client.offsets.beforeLoad = () => new Promise(() => {})
    const late = assert.rejects(consumer.resolve(operation, { timeoutMs: 50 }), TimeoutError)
    await client.clock.advance(50)
    await late
    const closed = assert.rejects(consumer.resolve(operation), ClosedError)
    await client.settle()
    await consumer.shutdown()
    await closed
    assert.equal(client.clock.timers, 0)
  })

  test("that will never tell is told", async () => {
    const client = filled(3)
    const consumer = open(client)
    const operation = await stopped(client, consumer)
    client.offsets.beforeLoad = async () => {
      throw new StorageError("broken")
    }
    await assert.rejects(consumer.resolve(operation), StorageError)
    consumer.abandon(operation)
    await consumer.shutdown()
  })

  test("abandoned, the partition stands still until seek, which is refused before", async () => {
    const client = filled(9)
    const consumer = open(client)
    const operation = await stopped(client, consumer)
    await assert.rejects(consumer.seek(0, { kind: "first" }), /consumer\.resolve\(operation\) or consumer\.abandon/)
    await assert.rejects(consumer.storeOffset(3n, 0, { resetPosition: true }), InvalidError)
    consumer.abandon(operation)
    assert.throws(() => consumer.abandon(operation), InvalidError)
    const waiting = consumer.next()
    await client.clock.advance(10_000)
    assert.equal(client.offsets.history.length, 0)
    await consumer.seek(0, { kind: "offset", value: 4n })
    assert.deepEqual(textsOf([(await waiting).value as never]), ["4"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 5n)
  })

  test("a shutdown goes back to what was handed out, whatever became of it", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 3)
    client.offsets.failures.push(cut())
    client.put(3, 9)
    await client.settle()
    client.storeNext(worker, 9n)
    await assert.rejects(consumer.nextWithin(100), MillraceError)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 3n)
  })

  test("a new history ends the question", async () => {
    const client = filled(3)
    const consumer = open(client)
    const operation = await stopped(client, consumer)
    client.log.purge(client.place(), "b")
    client.put(100, 102)
    await client.settle()
    await assert.rejects(consumer.resolve(operation), /no such open operation/)
    assert.deepEqual(textsOf(await take(consumer, 2)), ["100", "101"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 2n)
  })
})
