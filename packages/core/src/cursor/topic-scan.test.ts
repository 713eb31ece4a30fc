/** What a cursor asks for ahead of its caller. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, StorageError } from "@millrace/contract"
import { FakeClient, textOf } from "../consumer/fake-session.test-support.ts"
import type { Message } from "../record/message.ts"
import type { CursorResult } from "./cursor.ts"
import { openCursor } from "./log-cursor.ts"

function texts(results: readonly CursorResult<Message>[]): string[] {
  return results.map((result) => (result.kind === "record" ? textOf(result.message) : result.kind))
}

function numbers(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, n) => String(from + n))
}

describe("a poll that leaves something", () => {
  test("is followed by one request for more, whose answer is the next poll's", async () => {
    const client = new FakeClient()
    client.put(0, 10_000)
    client.put(10_000, 24_000)
    const cursor = await openCursor(client.context, client.topic, { batch: 20_000 })
    assert.deepEqual(texts(await cursor.poll()), numbers(0, 10_000))
    await client.settle()
    const { polls } = client.log
    await client.clock.advance(10_000)
    assert.equal(client.log.polls, polls, "one, and no more before it is wanted")
    assert.deepEqual([...cursor.offsets], [[0, 10_000n]])
    assert.deepEqual(texts(await cursor.poll()), numbers(10_000, 20_000))
    assert.deepEqual(texts(await cursor.poll()), numbers(20_000, 24_000))
    assert.deepEqual(await cursor.poll(), [])
    await cursor[Symbol.asyncDispose]()
    assert.deepEqual([client.clock.timers, client.log.readers.size], [0, 0])
  })

  test("and whose next records were purged meanwhile begins the new history", async () => {
    const client = new FakeClient()
    client.put(0, 12_000)
    const cursor = await openCursor(client.context, client.topic)
    assert.equal((await cursor.poll()).length, 10_000)
    client.log.purge(client.place(), "b")
    client.put(50, 52)
    const rest: string[] = []
    const read = (async () => {
      for await (const result of cursor.stream()) rest.push(...texts([result]))
    })()
    await client.clock.advance(1000)
    await read
    assert.deepEqual(rest.slice(-2), ["50", "51"])
    assert.ok(
      rest.slice(0, -2).every((text, index) => text === String(10_000 + index)),
      "before that only what was read of the old one",
    )
    await cursor[Symbol.asyncDispose]()
  })

  test("is forgotten by `restore`", async () => {
    const client = new FakeClient()
    client.put(0, 10_000)
    client.put(10_000, 15_000)
    const cursor = await openCursor(client.context, client.topic)
    assert.equal((await cursor.poll()).length, 10_000)
    cursor.restore(new Map([[0, 3n]]))
    assert.deepEqual(texts(await cursor.poll()), numbers(3, 10_003))
    cursor.restore(new Map([[0, 14_999n]]))
    assert.deepEqual(texts(await cursor.poll()), ["14999"])
    await cursor[Symbol.asyncDispose]()
  })

  test("and whose request fails loses nothing: what may pass is tried again, anything else is told with the next poll", async () => {
    for (const error of [new ConnectionError("away"), new StorageError("broken")]) {
      const client = new FakeClient()
      client.put(0, 10_000)
      client.put(10_000, 12_000)
      const cursor = await openCursor(client.context, client.topic, { batch: 10_000 })
      let requests = 0
      client.log.beforePoll = async () => {
        if (++requests === 2) client.log.pollFailures.push(error)
      }
      assert.equal((await cursor.poll()).length, 10_000)
      await client.settle()
      assert.deepEqual([requests, client.log.pollFailures.length], [2, 0], "the request ahead has failed")
      const next = cursor.poll().catch((thrown: unknown) => thrown)
      await client.clock.advance(100)
      if (!error.retryable) assert.ok((await next) instanceof StorageError)
      const rest = error.retryable ? await next : await cursor.poll()
      assert.deepEqual(texts(rest as CursorResult<Message>[]), numbers(10_000, 12_000))
      await cursor[Symbol.asyncDispose]()
    }
  })

  test("ends with its cursor, also while its request is on its way", async () => {
    const client = new FakeClient()
    client.put(0, 10_000)
    client.put(10_000, 12_000)
    const cursor = await openCursor(client.context, client.topic, { batch: 10_000 })
    let requests = 0
    const never = new Promise<void>(() => {})
    client.log.beforePoll = () => (++requests > 1 ? never : Promise.resolve())
    assert.equal((await cursor.poll()).length, 10_000)
    await client.settle()
    assert.equal(requests, 2)
    await cursor[Symbol.asyncDispose]()
    assert.deepEqual([client.clock.timers, client.owned.size], [0, 0])
  })
})
