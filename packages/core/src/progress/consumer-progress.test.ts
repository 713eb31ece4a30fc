import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, DiskFullError, HistoryChangedError, InvalidError, StorageError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take, textOf, textsOf } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import type { Message } from "../record/message.ts"

const worker = { kind: "consumer", name: "worker" } as const

function open(client: FakeClient, options?: ConsumerOptions, name: string | undefined = "worker"): Consumer {
  return openConsumer(client.context, { topic: client.topic, name, partition: 0 }, options)
}

function _openUnnamed(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: undefined, partition: 0 }, options)
}

const filled = (records: number): FakeClient => {
  const client = new FakeClient()
  client.put(0, records)
  return client
}

describe("polling, the default", () => {
  test("stores what is handled when the next page is asked for", async () => {
    const client = filled(10)
    const consumer = open(client, { batchLength: 4 })
    await take(consumer, 4)
    await client.settle()
    assert.equal(client.storedNext("worker"), undefined, "the page is not asked for yet")
    await take(consumer, 1)
    await client.settle()
    assert.equal(client.storedNext("worker"), 4n)
    await take(consumer, 2)
    await client.settle()
    assert.equal(client.storedNext("worker"), 4n, "in the middle of a page nothing is stored")
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 7n)
  })

  test("the lag comes to 0 when a caller waits behind the last message", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 3)
    const waiting = consumer.next()
    await client.settle()
    assert.equal(client.storedNext("worker"), 3n)
    assert.deepEqual(
      (await consumer.lag()).map(({ lag }) => lag),
      [0n],
    )
    await consumer.shutdown()
    await waiting
  })

  test("offset 0 is a real offset", async () => {
    const client = filled(1)
    const consumer = open(client)
    await take(consumer, 1)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 1n)
    client.put(1, 2)
    const again = open(client)
    assert.deepEqual(textsOf(await take(again, 1)), ["1"])
    await again.shutdown()
  })

  test("a store in the background never holds up reading, and only the newest progress follows it", async () => {
    const client = filled(100)
    let release = (): void => {}
    client.offsets.gate = new Promise((resolve) => {
      release = resolve
    })
    const consumer = open(client, { batchLength: 10 })
    await take(consumer, 95)
    await client.settle()
    release()
    client.offsets.gate = undefined
    await client.settle()
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [10n, 90n],
    )
    await consumer.shutdown()
  })
})

describe("all", () => {
  test("stores once the whole page is handled", async () => {
    const client = filled(10)
    const consumer = open(client, { batchLength: 4, commitPolicy: { kind: "all" } })
    await take(consumer, 4)
    await client.settle()
    assert.equal(client.storedNext("worker"), undefined)
    await take(consumer, 1)
    await client.settle()
    assert.equal(client.storedNext("worker"), 4n)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 5n)
  })
})

describe("each", () => {
  test("a message is stored before the next one is handed out", async () => {
    const client = filled(5)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    for (let n = 0; n < 5; n++) {
      await take(consumer, 1)
      assert.equal(client.storedNext("worker"), n === 0 ? undefined : BigInt(n))
    }
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 5n)
  })

  test("overlapping calls get no message before its predecessors' store", async () => {
    const client = filled(4)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const results = await Promise.all([consumer.next(), consumer.next(), consumer.next(), consumer.next()])
    assert.deepEqual(textsOf(results.map(({ value }) => value as Message)), ["0", "1", "2", "3"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })
})

describe("disabled", () => {
  test("stores only what commit says (A-11)", async () => {
    const client = filled(10)
    const consumer = open(client, { commitPolicy: { kind: "disabled" }, batchLength: 2 })
    const messages = await take(consumer, 6)
    await client.settle()
    assert.equal(client.storedNext("worker"), undefined)
    await consumer.commit(messages[3])
    assert.equal(client.storedNext("worker"), 4n)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })
})

describe("a handler that throws (A-11)", () => {
  for (const kind of ["polling", "all", "each"] as const) {
    test(`with ${kind}, message 5 of 10 is the next to be delivered`, async () => {
      const client = filled(10)
      const boom = new Error("boom")
      await assert.rejects(async () => {
        await using consumer = open(client, { commitPolicy: { kind } })
        for await (const message of consumer) if (textOf(message) === "5") throw boom
      }, boom)
      assert.equal(client.storedNext("worker"), 5n)
    })

    test(`with ${kind} and a shutdown in finally, too`, async () => {
      const client = filled(10)
      const consumer = open(client, { commitPolicy: { kind } })
      await assert.rejects(async () => {
        try {
          for await (const message of consumer) if (textOf(message) === "5") throw new Error("boom")
        } finally {
          await consumer.shutdown()
        }
      })
      assert.equal(client.storedNext("worker"), 5n)
    })

    test(`with ${kind}, on message 0 nothing is stored`, async () => {
      const client = filled(10)
      await assert.rejects(async () => {
        await using consumer = open(client, { commitPolicy: { kind } })
        for await (const _message of consumer) throw new Error("boom")
      })
      assert.equal(client.storedNext("worker"), undefined)
      const again = open(client)
      assert.deepEqual(textsOf(await take(again, 1)), ["0"])
      await again.shutdown()
    })
  }
})

describe("commit", () => {
  test("of the last message, then a restart: nothing comes again, and the lag is 0 (A-12)", async () => {
    const client = filled(5)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 5)
    await consumer.commit(messages[4])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 5n)
    const again = open(client)
    const waiting = again.next()
    await client.settle()
    assert.equal((await again.lag())[0]?.lag, 0n)
    await again.shutdown()
    assert.equal((await waiting).done, true)
  })

  test("without an argument stores all that was handed out", async () => {
    const client = filled(5)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    await take(consumer, 3)
    await consumer.commit()
    assert.equal(client.storedNext("worker"), 3n)
    await consumer.shutdown()
  })

  test("takes a checkpoint, which keeps no bytes", async () => {
    const client = filled(5)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const checkpoint = (await take(consumer, 2))[1]?.checkpoint()
    assert.equal(checkpoint?.offset, 1n)
    await consumer.commit(checkpoint)
    assert.equal(client.storedNext("worker"), 2n)
    await consumer.shutdown()
  })

  test("never moves back, and overtakes no store", async () => {
    const client = filled(9)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 9)
    await Promise.all([consumer.commit(messages[7]), consumer.commit(messages[2]), consumer.commit(messages[5])])
    await consumer.commit(messages[0])
    assert.equal(client.storedNext("worker"), 8n)
    await consumer.shutdown()
  })

  test("during a replay, of what lies before the stored progress, takes nothing back; storeOffset does", async () => {
    const client = filled(9)
    client.storeNext(worker, 9n)
    const consumer = open(client, { commitPolicy: { kind: "disabled" }, startAt: { kind: "first" }, allowReplay: true })
    const messages = await take(consumer, 2)
    await consumer.commit(messages[1])
    assert.equal(client.storedNext("worker"), 9n)
    await consumer.storeOffset(1n)
    assert.equal(client.storedNext("worker"), 2n)
    await consumer.shutdown()
  })

  test("a message of another partition or topic is refused, and names both", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 1, 0)
    client.put(0, 1, 1)
    const consumer = open(client)
    const other = openConsumer(client.context, { topic: client.topic, name: "other", partition: 1 })
    const [message] = await take(other, 1)
    await take(consumer, 1)
    await assert.rejects(
      consumer.commit(message),
      (error) => error instanceof InvalidError && /reads partition 0/.test(error.message),
    )
    await consumer.shutdown()
    await other.shutdown()
  })

  test("of a history that is over is refused with HistoryChangedError, and stores nothing", async () => {
    const client = filled(3)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const [message] = await take(consumer, 1)
    client.log.purge(client.place(), "b")
    client.put(100, 101)
    await client.settle()
    await assert.rejects(consumer.commit(message), HistoryChangedError)
    assert.equal(client.offsets.history.length, 0)
    await consumer.shutdown()
  })

  test("that waits while the history changes is refused, and never reaches the store", async () => {
    const client = filled(5)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 3)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    const first = consumer.commit(messages[0])
    await client.settle()
    const second = assert.rejects(consumer.commit(messages[2]), HistoryChangedError)
    client.log.purge(client.place(), "b")
    client.put(0, 1)
    await second
    store.resolve()
    await first
    await client.settle()
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [1n],
    )
    await consumer.shutdown()
  })

  test("what it fails with is told to its caller alone", async () => {
    const client = filled(3)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const [message] = await take(consumer, 1)
    client.offsets.failures.push(new DiskFullError("no room"))
    await assert.rejects(consumer.commit(message), DiskFullError)
    await consumer.commit(message)
    assert.equal(client.storedNext("worker"), 1n)
    assert.equal(textOf(await consumer.nextWithin(100)), "1")
    await consumer.shutdown()
  })

  test("that fails leaves it to the policy to store what is handled", async () => {
    const client = filled(3)
    const consumer = open(client)
    const [message] = await take(consumer, 1)
    client.offsets.failures.push(new DiskFullError("no room"))
    await assert.rejects(consumer.commit(message), DiskFullError)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 1n)
  })

  test("behind markers the progress includes them, so that the lag comes to 0", async () => {
    const client = filled(3)
    client.log.putMarkers(client.place(), 2)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 3)
    await consumer.commit(messages[2])
    assert.equal(client.storedNext("worker"), 5n)
    await consumer.shutdown()
  })
})

describe("stores that fail in the background", () => {
  test("are tried again when they may pass", async () => {
    const client = filled(10)
    client.offsets.failures.push(new ConnectionError("away"), new ConnectionError("away"))
    const consumer = open(client, { batchLength: 3, pollingRetryIntervalMs: 500 })
    await take(consumer, 4)
    await client.clock.advance(500)
    assert.equal(client.storedNext("worker"), undefined)
    await client.clock.advance(500)
    assert.equal(client.storedNext("worker"), 3n)
    await consumer.shutdown()
  })

  test("are tried again with the newest progress", async () => {
    const client = filled(10)
    client.offsets.failures.push(new ConnectionError("away"))
    const consumer = open(client, { batchLength: 2, pollingRetryIntervalMs: 500 })
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    await take(consumer, 7)
    store.resolve()
    await client.clock.advance(500)
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [6n],
    )
    await consumer.shutdown()
  })

  test("keep no commit of the caller waiting until they are tried again", async () => {
    const client = filled(10)
    client.offsets.failures.push(new ConnectionError("away"))
    const consumer = open(client, { batchLength: 3, pollingRetryIntervalMs: 500 })
    const messages = await take(consumer, 4)
    await client.settle()
    const store = Promise.withResolvers<void>()
    await consumer.commit(messages[3])
    assert.equal(client.storedNext("worker"), 4n, "at once")
    client.offsets.failures.push(new ConnectionError("away"))
    client.offsets.gate = store.promise
    const more = await take(consumer, 4)
    await client.settle()
    const second = consumer.commit(more[3])
    client.offsets.gate = undefined
    store.resolve()
    await second
    assert.equal(client.storedNext("worker"), 8n, "also when it comes while the store that fails is under way")
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("fail the next read when they will not, and do not end the consumer", async () => {
    const client = filled(10)
    const failure = new StorageError("broken")
    client.offsets.failures.push(failure)
    const consumer = open(client, { batchLength: 3 })
    await take(consumer, 4)
    await client.settle()
    await assert.rejects(consumer.nextWithin(100), failure)
    assert.deepEqual(textsOf(await take(consumer, 3)), ["4", "5", "6"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 7n)
  })

  test("are made up for at the end, when nothing more was handled", async () => {
    const client = filled(10)
    client.offsets.failures.push(new StorageError("broken"))
    const consumer = open(client, { batchLength: 3 })
    await take(consumer, 3)
    const waiting = consumer.next()
    await client.settle()
    await waiting
    await assert.rejects(consumer.nextWithin(100), StorageError)
    for await (const _message of consumer) break
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })

  test("that may pass are tried until they do, and end nobody's loop", async () => {
    const client = filled(10)
    for (let n = 0; n < 40; n++) client.offsets.failures.push(new ConnectionError("away"))
    const consumer = open(client, { batchLength: 3, pollingRetryIntervalMs: 1000 })
    await take(consumer, 4)
    await client.clock.advance(41_000)
    assert.equal(client.storedNext("worker"), 3n)
    await take(consumer, 2)
    await consumer.shutdown()
  })

  test("that go on for a minute fail the next read, and are still tried", async () => {
    const client = filled(10)
    for (let n = 0; n < 65; n++) client.offsets.failures.push(new ConnectionError("away"))
    const consumer = open(client, { batchLength: 3, pollingRetryIntervalMs: 1000 })
    await take(consumer, 4)
    await client.clock.advance(62_000)
    await assert.rejects(consumer.nextWithin(100), ConnectionError)
    assert.equal(client.storedNext("worker"), undefined)
    await client.clock.advance(10_000)
    assert.equal(client.storedNext("worker"), 3n)
    await consumer.shutdown()
  })

  test("fail the shutdown when it is the last one", async () => {
    const client = filled(3)
    const consumer = open(client)
    await take(consumer, 2)
    client.offsets.failures.push(new StorageError("broken"))
    await assert.rejects(consumer.shutdown(), StorageError)
    assert.equal(client.owned.size, 0)
  })
})
