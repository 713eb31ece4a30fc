import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ClosedError,
  ConnectionError,
  CorruptionError,
  InvalidError,
  StorageError,
  TimeoutError,
} from "@millrace/contract"
import fc from "fast-check"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take, textsOf } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import { encryptor } from "../encryption/encryptor.ts"
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

describe("onRead", () => {
  test("stores what was read before it hands it out", async () => {
    const client = filled(4)
    const consumer = open(client)
    let release = (): void => {}
    client.offsets.gate = new Promise((resolve) => {
      release = resolve
    })
    const first = consumer.next()
    await client.settle()
    let handed = false
    const noted = first.then(() => {
      handed = true
    })
    await client.clock.advance(5000)
    assert.equal(handed, false, "the store is under way")
    client.put(4, 6)
    await client.settle()
    client.offsets.gate = undefined
    release()
    await noted
    await client.settle()
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [4n, 6n],
      "a batch that came meanwhile is stored behind the first",
    )
    assert.deepEqual(textsOf(await take(consumer, 5)), ["1", "2", "3", "4", "5"])
    await consumer.shutdown()
  })

  test("a crash loses what was read and not handled, and repeats nothing", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 6 }),
        fc.nat({ max: 8 }),
        fc.array(fc.boolean(), { maxLength: 4 }),
        async (batches, reads, outages) => {
          const client = new FakeClient()
          let end = 0
          for (const count of batches) {
            client.put(end, end + count)
            end += count
          }
          for (const fails of outages) if (fails) client.offsets.failures.push(new ConnectionError("away"))
          const crashed = open(client, { prefetchRecords: 5 })
          const seen: string[] = []
          for (let n = 0; n < Math.min(reads, end); n++) {
            const message = crashed.nextWithin(10_000)
            await client.clock.advance(3000)
            seen.push(...textsOf([await message]))
            const next = BigInt(client.storedNext("worker") ?? 0n)
            assert.ok(next >= BigInt(seen.length), `stored ${next}, handed out ${seen.length}`)
          }
          // Nothing is said to the crashed one: what is stored is what its successor finds.
          const again = open(client)
          const rest: string[] = []
          for (;;) {
            const message = again.nextWithin(1000).catch((error: unknown) => error)
            await client.clock.advance(1000)
            const one = await message
            if (one instanceof TimeoutError) break
            assert.ok(!(one instanceof Error), String(one))
            rest.push(...textsOf([one as never]))
          }
          assert.ok(
            rest.every((text) => !seen.includes(text)),
            `seen ${seen}, again ${rest}`,
          )
          await again.shutdown()
          await crashed.shutdown()
        },
      ),
      { numRuns: 60 },
    )
  })

  test("the lag comes to 0 behind markers", async () => {
    const client = filled(2)
    const consumer = open(client)
    await take(consumer, 2)
    client.log.putMarkers(client.place(), 3)
    await client.settle()
    assert.equal(client.storedNext("worker"), 5n)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 5n)
  })

  test("commit and mark are refused, resolve and abandon are for it alone", async () => {
    const client = filled(2)
    const consumer = open(client)
    const [message] = await take(consumer, 1)
    assert.ok(message !== undefined)
    await assert.rejects(
      consumer.commit(message),
      (error) => error instanceof InvalidError && /"onRead"/.test(error.message),
    )
    await assert.rejects(consumer.commit(), InvalidError)
    assert.throws(() => consumer.mark(message), InvalidError)
    const operation = new ReadOperation(client.place(), 3n)
    await assert.rejects(consumer.resolve(operation), /no such open operation/)
    assert.throws(() => consumer.abandon(operation), /no such open operation/)
    await assert.rejects(consumer.resolve(operation, { timeoutMs: 0 }), /"timeoutMs" is 0/)
    await assert.rejects(consumer.resolve(operation, { wait: 1 } as never), /unknown option "wait"/)
    await consumer.shutdown()
    await assert.rejects(consumer.resolve(operation), ClosedError)
    const other = open(client, { commitPolicy: { kind: "polling" } })
    await assert.rejects(other.resolve(operation), /is for the commit policy "onRead"/)
    assert.throws(() => other.abandon(operation), /is for the commit policy "onRead"/)
    await other.shutdown()
  })

  test("is refused with an encryptor, the consumer's or the client's, and without a name", async () => {
    const client = filled(1)
    const own = encryptor({ current: "k", keys: { k: new Uint8Array(32).fill(1) } })
    const refused = /"onRead" is not possible with an encryptor/
    assert.throws(() => open(client, { encryptor: own }), refused)
    const encrypted = { ...client.context, encryptor: own }
    const source = { topic: client.topic, name: "worker", partition: 0 }
    const commitPolicy = { kind: "onRead" } as const
    assert.throws(() => openConsumer(encrypted, source, { commitPolicy }), refused)
    await openConsumer(encrypted, source, { commitPolicy, encryptor: false }).shutdown()
    await assert.rejects(openGroupConsumer(encrypted, { topic: client.topic, group: "g" }, { commitPolicy }), refused)
    assert.equal(client.groups.joins.length, 0, "before it joins")
    assert.throws(
      () => openConsumer(client.context, { ...source, name: undefined }, { commitPolicy }),
      /needs a consumer name/,
    )
  })
})

describe("the end of a consumer under onRead", () => {
  for (const handed of [0, 1, 3, 10]) {
    test(`moves the offset back behind the last message handed out: ${handed} of 10 that were read`, async () => {
      const client = filled(10)
      const consumer = open(client)
      const store = Promise.withResolvers<void>()
      client.offsets.gate = store.promise
      const late = assert.rejects(consumer.nextWithin(50), TimeoutError)
      await client.clock.advance(50)
      await late
      store.resolve()
      await client.settle()
      if (handed > 0) await take(consumer, handed)
      await client.settle()
      assert.equal(client.storedNext("worker"), 10n, "all of it is stored")
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), BigInt(handed))
      const again = open(client)
      client.put(10, 11)
      assert.deepEqual(textsOf(await take(again, 1)), [String(handed)])
      await again.shutdown()
      assert.equal(client.clock.timers, 0)
    })
  }

  test("also when it was the scope that ended", async () => {
    const client = filled(10)
    await assert.rejects(async () => {
      await using consumer = open(client)
      await take(consumer, 3)
      throw new Error("boom")
    })
    assert.equal(client.storedNext("worker"), 3n, "what was handed out never comes again")
  })

  test("leaves alone what was stored, when nothing was read, and what the caller stored", async () => {
    const client = filled(10)
    client.storeNext(worker, 10n)
    const idle = open(client)
    const waiting = idle.next()
    await client.settle()
    await idle.shutdown()
    await waiting
    assert.equal(client.offsets.history.length, 0)
    const consumer = open(client, { startAt: { kind: "first" }, allowReplay: true })
    await take(consumer, 4)
    await consumer.storeOffset(7n)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 8n)
  })

  test("tells when the store fails, and leaves nothing behind", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 3)
    client.offsets.failures.push(new StorageError("broken"))
    await assert.rejects(consumer.shutdown(), StorageError)
    assert.equal(client.clock.timers, 0)
    assert.equal(client.owned.size, 0)
  })

  test("in the midst of a store", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 2)
    let release = (): void => {}
    client.offsets.gate = new Promise((resolve) => {
      release = resolve
    })
    client.put(10, 20)
    await client.settle()
    const ended = consumer.shutdown()
    await client.settle()
    release()
    await ended
    assert.equal(client.storedNext("worker"), 2n)
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [10n, 20n, 2n],
    )
  })

  test("a partition that is handed over takes along what was not handed out", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    client.groups.membership.tell({ assigned: [client.claim(0, "one")] })
    const consumer = await openGroupConsumer(
      client.context,
      { topic: client.topic, group: "g" },
      { commitPolicy: { kind: "onRead" } },
    )
    await take(consumer, 3)
    assert.equal(client.groupNext("g"), 10n)
    client.groups.membership.tell({ revoked: [client.claim(0, "one")] })
    await client.clock.advance(2000)
    assert.equal(client.groups.membership.released.length, 1)
    assert.equal(client.groupNext("g"), 3n)
    await consumer.shutdown()
    assert.equal(client.groupNext("g"), 3n, "nothing of it is stored any more")
  })
})

describe("seek under onRead", () => {
  test("stores the offset before it first, and begins there", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 2)
    client.offsets.history.length = 0
    await consumer.seek(0, { kind: "offset", value: 6n })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["6"])
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [6n, 10n],
    )
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 7n)
  })

  test("when nothing is read behind it, its place is where the next reader begins", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 2)
    await consumer.seek(0, { kind: "offset", value: 6n })
    await client.settle()
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 6n)
  })

  test("to the first record stores nothing by itself", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 5)
    client.offsets.history.length = 0
    await consumer.seek(0, { kind: "first" })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["0"])
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [10n],
    )
    await consumer.shutdown()
  })

  test("whose store fails changes nothing", async () => {
    const client = filled(10)
    const consumer = open(client)
    await take(consumer, 2)
    client.offsets.failures.push(new StorageError("broken"))
    await assert.rejects(consumer.seek(0, { kind: "offset", value: 6n }), StorageError)
    assert.deepEqual(textsOf(await take(consumer, 8)), ["2", "3", "4", "5", "6", "7", "8", "9"])
    await consumer.shutdown()
  })
})

describe("what the reader fails with under onRead", () => {
  test("comes behind what was read before, also while that waits for its store", async () => {
    const client = filled(2)
    const consumer = open(client)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    const first = consumer.nextWithin(5000)
    await client.settle()
    const broken = new CorruptionError("damaged")
    const partition = client.log.find(client.place())
    assert.ok(partition !== undefined)
    partition.failure = broken
    client.log.wake()
    await client.settle()
    store.resolve()
    assert.deepEqual(textsOf([await first]), ["0"])
    assert.deepEqual(textsOf(await take(consumer, 1)), ["1"])
    await assert.rejects(consumer.nextWithin(100), broken)
    await consumer.shutdown()
  })
})
