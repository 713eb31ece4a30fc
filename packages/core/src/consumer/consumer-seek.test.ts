import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ClosedError,
  ConnectionError,
  CorruptionError,
  InvalidError,
  NotFoundError,
  OffsetOutOfRangeError,
  PermissionError,
  StorageError,
} from "@millrace/contract"
import type { StartAt } from "../partition/start-at.ts"
import type { Message } from "../record/message.ts"
import type { Consumer } from "./consumer.ts"
import { failing, filled, open, seek } from "./consumer-seek.test-support.ts"
import { FakeClient, take, textsOf } from "./fake-session.test-support.ts"

const worker = { kind: "consumer", name: "worker" } as const

describe("seek goes to every place that a consumer can start at", () => {
  const places: [StartAt, string][] = [
    [{ kind: "first" }, "0"],
    [{ kind: "last" }, "39"],
    [{ kind: "next" }, "12"],
    [{ kind: "offset", value: 7n }, "7"],
    [{ kind: "offset", value: 0n }, "0"],
    [{ kind: "timestampMicros", value: 1170n }, "17"],
    [{ kind: "timestampMicros", value: 1165n }, "17"],
    [{ kind: "timestampMicros", value: 0n }, "0"],
  ]
  for (const [to, first] of places) {
    test(`${to.kind} ${"value" in to ? to.value : ""}`, async () => {
      const client = filled(40)
      client.storeNext(worker, 12n)
      const consumer = open(client, { commitPolicy: { kind: "disabled" } })
      assert.deepEqual(textsOf(await take(consumer, 3)), ["12", "13", "14"])
      await seek(client, consumer, to)
      assert.deepEqual(textsOf(await take(consumer, 1)), [first])
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 12n, "stored progress stays")
    })
  }

  test("next without anything stored is the first record", async () => {
    const client = filled(20)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    await take(consumer, 7)
    await seek(client, consumer, { kind: "next" })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["0"])
    await consumer.shutdown()
  })

  test("behind all times, or at the end, the next record that is appended", async () => {
    for (const to of [
      { kind: "timestampMicros", value: 10_000_000n },
      { kind: "offset", value: 20n },
    ] as const) {
      const client = filled(20)
      const consumer = open(client)
      await take(consumer, 3)
      await seek(client, consumer, to)
      const waiting = consumer.next()
      await client.settle()
      client.put(20, 21)
      assert.deepEqual(textsOf([(await waiting).value as Message]), ["20"])
      await consumer.shutdown()
    }
  })

  test("times that go back: the first offset whose time is not before (A-35)", async () => {
    for (const [value, offset] of [
      [1000n, 0n],
      [1001n, 1n],
      [901n, 0n],
    ] as const) {
      const client = new FakeClient()
      for (const timestampMicros of [1000n, 1001n, 900n, 902n]) client.log.put(client.place(), [{ timestampMicros }])
      const consumer = open(client)
      await take(consumer, 4)
      await seek(client, consumer, { kind: "timestampMicros", value })
      assert.equal((await take(consumer, 1))[0]?.position.offset, offset, `at ${value}`)
      await consumer.shutdown()
    }
  })

  test("behind the end, or before the first record, is what onOutOfRange says", async () => {
    for (const [onOutOfRange, expected] of [
      ["first", "10"],
      ["fail", OffsetOutOfRangeError],
    ] as const) {
      for (const value of [1000n, 3n]) {
        const client = filled(20)
        client.log.trim(client.place(), 10n)
        const consumer = open(client, { onOutOfRange })
        await take(consumer, 2)
        await seek(client, consumer, { kind: "offset", value })
        const next = consumer.next()
        if (typeof expected === "string") assert.deepEqual(textsOf([(await next).value as Message]), [expected])
        else assert.ok((await failing(client, next)) instanceof expected)
        await consumer.shutdown()
      }
    }
  })
})

describe("seek, whatever the reader is doing", () => {
  test("with the read-ahead full, throws it away and reads on at once", async () => {
    const client = filled(100)
    const consumer = open(client, { prefetchRecords: 20 })
    await take(consumer, 1)
    const began = client.clock.monotonicMs()
    await seek(client, consumer, { kind: "offset", value: 90n })
    assert.deepEqual(textsOf(await take(consumer, 10)), ["90", "91", "92", "93", "94", "95", "96", "97", "98", "99"])
    await seek(client, consumer, { kind: "first" })
    assert.equal((await take(consumer, 100)).length, 100)
    assert.equal(client.clock.monotonicMs(), began)
    await consumer.shutdown()
  })

  test("while a poll waits at the end", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 10)
    const waiting = consumer.next()
    await client.settle()
    await seek(client, consumer, { kind: "offset", value: 4n })
    assert.deepEqual(textsOf([(await waiting).value as Message]), ["4"])
    await consumer.shutdown()
  })

  test("before the first read, and while the start is looked up", async () => {
    const client = filled(10)
    client.log.beforeLocate = () => client.clock.advance(0)
    const consumer = open(client)
    const done = consumer.seek(0, { kind: "offset", value: 6n })
    const read = consumer.next()
    await done
    assert.deepEqual(textsOf([(await read).value as Message]), ["6"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 7n)
  })

  test("before the first read, what is marked from there on is progress", async () => {
    const client = filled(10)
    const consumer = open(client, { commitPolicy: { kind: "auto", after: "marked", every: 1 } })
    await consumer.seek(0, { kind: "offset", value: 6n })
    const [message] = await take(consumer, 1)
    assert.ok(message !== undefined)
    consumer.mark(message)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 7n)
  })

  test("while a failed poll waits to be tried again: it is not waited for", async () => {
    const client = filled(10)
    const consumer = open(client, { pollingRetryIntervalMs: 10_000 })
    await take(consumer, 3)
    client.log.pollFailures.push(new ConnectionError("away"))
    await take(consumer, 7)
    const waiting = consumer.next()
    await client.clock.advance(6000)
    await seek(client, consumer, { kind: "first" })
    assert.deepEqual(textsOf([(await waiting).value as Message]), ["0"])
    assert.ok(client.clock.monotonicMs() < 7000)
    await consumer.shutdown()
  })

  test("while the partition's failure waits to be tried again", async () => {
    const client = filled(10)
    const consumer = open(client, { pollingRetryIntervalMs: 10_000 })
    await take(consumer, 2)
    const partition = client.log.find(client.place())
    assert.ok(partition !== undefined)
    partition.failure = new StorageError("a bad disk")
    await take(consumer, 8)
    client.log.wake()
    assert.ok((await failing(client, consumer.next())) instanceof StorageError)
    await seek(client, consumer, { kind: "offset", value: 8n })
    assert.deepEqual(textsOf(await take(consumer, 2)), ["8", "9"])
    assert.equal(client.clock.monotonicMs(), 0)
    await consumer.shutdown()
  })

  test("an error that was not handed out yet is void too", async () => {
    const client = filled(10)
    const partition = client.log.find(client.place())
    partition?.damage.push({ offset: 5n, error: new CorruptionError("bad bytes") })
    const consumer = open(client)
    await take(consumer, 2)
    await client.settle()
    await seek(client, consumer, { kind: "last" })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["9"])
    await consumer.shutdown()
  })

  test("of two, the later one counts, and both settle", async () => {
    const client = filled(20)
    const consumer = open(client)
    await take(consumer, 1)
    const both = [consumer.seek(0, { kind: "first" }), consumer.seek(0, { kind: "last" })]
    await client.settle()
    await Promise.all(both)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["19"])
    const mixed = [consumer.seek(0, { kind: "last" }), consumer.seek(0, { kind: "offset", value: 3n })]
    await client.settle()
    await Promise.all(mixed)
    assert.deepEqual(textsOf(await take(consumer, 2)), ["3", "4"])
    await consumer.shutdown()
  })

  test("storeOffset with resetPosition overrules one that looks its place up, and reading goes on", async () => {
    const client = filled(20)
    const consumer = open(client)
    await take(consumer, 1)
    const gate = Promise.withResolvers<void>()
    client.log.beforeLocate = () => gate.promise
    const looking = consumer.seek(0, { kind: "last" })
    await consumer.storeOffset(9n, 0, { resetPosition: true })
    gate.resolve()
    await client.settle()
    await looking
    assert.deepEqual(textsOf(await take(consumer, 1)), ["10"])
    await consumer.shutdown()
  })

  test("one that was overruled while it looked its place up stores nothing", async () => {
    const client = filled(20)
    const consumer = open(client, { commitPolicy: { kind: "onRead" } })
    const read = consumer.nextWithin(1000)
    await client.settle()
    await read
    const gate = Promise.withResolvers<void>()
    client.log.beforeLocate = () => gate.promise
    const both = [consumer.seek(0, { kind: "last" }), consumer.seek(0, { kind: "offset", value: 3n })]
    await client.settle()
    const stores = client.offsets.history.length
    gate.resolve()
    await client.settle()
    await Promise.all(both)
    assert.ok(client.offsets.history.slice(stores).every(({ offset }) => offset !== 19n))
    await consumer.shutdown()
  })

  test("nothing of the old place is handed out while the new one is looked up", async () => {
    const client = filled(20)
    const consumer = open(client)
    await take(consumer, 3)
    const gate = Promise.withResolvers<void>()
    client.log.beforeLocate = () => gate.promise
    const done = consumer.seek(0, { kind: "last" })
    const read = consumer.next()
    await client.settle()
    gate.resolve()
    await done
    assert.deepEqual(textsOf([(await read).value as Message]), ["19"])
    await consumer.shutdown()
  })

  test("that fails leaves everything as it was", async () => {
    const client = filled(20)
    const consumer = open(client)
    await take(consumer, 3)
    client.log.beforeLocate = async () => {
      throw new ConnectionError("away")
    }
    assert.ok((await failing(client, consumer.seek(0, { kind: "first" }))) instanceof ConnectionError)
    assert.deepEqual(textsOf(await take(consumer, 2)), ["3", "4"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 5n)
  })

  test("into a topic that was recreated meanwhile tells the new history and goes to the place in it", async () => {
    const client = filled(20)
    const consumer = open(client)
    await take(consumer, 3)
    const changes: unknown[] = []
    consumer.on({ sourceChanged: (change) => changes.push(change) })
    const partition = client.log.find(client.place())
    assert.ok(partition !== undefined)
    // Before any reader has noticed.
    partition.batches = []
    partition.first = 0n
    partition.end = 0n
    partition.lineage = "b"
    client.put(100, 103)
    await seek(client, consumer, { kind: "last" })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["102"])
    assert.equal(changes.length, 1)
    await consumer.shutdown()
    assert.deepEqual(client.offsets.history.at(-1), { ...client.place(), offset: 3n, lineage: "b" })
  })

  test("what was handed out before is void, and what is stored does not go back", async () => {
    const client = filled(20)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    await take(consumer, 10)
    await seek(client, consumer, { kind: "offset", value: 2n })
    await take(consumer, 2)
    assert.equal(client.storedNext("worker"), 9n)
    await take(consumer, 8)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 12n)
  })

  test("after shutdown, of another partition, or to nowhere is refused", async () => {
    const client = filled(5)
    const consumer = open(client)
    await take(consumer, 1)
    await assert.rejects(consumer.seek(3, { kind: "first" }), InvalidError)
    await assert.rejects(consumer.seek(0, { kind: "offset", value: -1n }), /to\.value is -1n/)
    await assert.rejects(consumer.seek(0, "skipp" as never), InvalidError)
    await consumer.shutdown()
    await assert.rejects(consumer.seek(0, { kind: "first" }), ClosedError)
  })

  test("that is under way at the shutdown is told so", async () => {
    const client = filled(5)
    const consumer = open(client)
    await take(consumer, 1)
    const gate = Promise.withResolvers<void>()
    client.log.beforeLocate = () => gate.promise
    const done = failing(client, consumer.seek(0, { kind: "first" }))
    await consumer.shutdown()
    gate.resolve()
    assert.ok((await done) instanceof ClosedError)
  })
})

describe("a partition that is refused", () => {
  for (const refusal of [new PermissionError("not allowed"), new NotFoundError("not there")]) {
    test(`${refusal.kind}: is asked for after waits that double, and stops after six in a row, until seek`, async () => {
      const client = filled(10)
      const partition = client.log.find(client.place())
      assert.ok(partition !== undefined)
      partition.refusal = refusal
      const consumer = open(client, { pollingRetryIntervalMs: 100 })
      const at: number[] = []
      let last: unknown
      for (let n = 0; n < 6; n++) {
        last = await nextFailure(client, consumer)
        at.push(client.clock.monotonicMs())
      }
      assert.deepEqual(
        at.slice(1).map((ms, index) => Math.round((ms - (at[index] as number)) / 100)),
        [1, 2, 4, 8, 16],
      )
      assert.ok(last instanceof refusal.constructor && /not read again before consumer\.seek/.test(String(last)))
      partition.refusal = undefined
      const told = consumer.next().catch((error) => error)
      await client.clock.advance(60_000)
      assert.match(String(await told), /not read again before/, "no silent stall: the error comes again")
      await seek(client, consumer, { kind: "first" })
      assert.deepEqual(textsOf(await take(consumer, 1)), ["0"])
      await consumer.shutdown()
    })
  }

  test("five in a row and a success begin the count anew", async () => {
    const client = filled(10)
    const partition = client.log.find(client.place())
    assert.ok(partition !== undefined)
    const consumer = open(client, { pollingRetryIntervalMs: 100 })
    await take(consumer, 10)
    for (let round = 0; round < 3; round++) {
      partition.refusal = new PermissionError("not allowed")
      client.log.wake()
      for (let n = 0; n < 5; n++) assert.doesNotMatch(String(await nextFailure(client, consumer)), /in a row/)
      partition.refusal = undefined
      client.put(10 + round, 11 + round)
      const read = consumer.nextWithin(10_000)
      await client.clock.advance(1600)
      assert.deepEqual(textsOf([await read]), [String(10 + round)])
    }
    await consumer.shutdown()
  })

  test("with onMissing wait a topic that is not there never stops it", async () => {
    const client = filled(5)
    const partition = client.log.find(client.place())
    assert.ok(partition !== undefined)
    partition.refusal = new NotFoundError("not there")
    const consumer = open(client, { onMissing: "wait", pollingRetryIntervalMs: 100 })
    const read = consumer.nextWithin(600_000)
    await client.clock.advance(120_000)
    partition.refusal = undefined
    await client.clock.advance(100)
    assert.deepEqual(textsOf([await read]), ["0"])
    await consumer.shutdown()
  })
})

/** What the next read fails with, however long that takes. */
async function nextFailure(client: FakeClient, consumer: Consumer): Promise<unknown> {
  let failure: unknown
  consumer.next().then(
    () => assert.fail("the read did not fail"),
    (error) => {
      failure = error
    },
  )
  for (let step = 0; failure === undefined && step < 1000; step++) await client.clock.advance(50)
  return failure
}
