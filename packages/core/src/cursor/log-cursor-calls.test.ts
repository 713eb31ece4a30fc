/** Calls of one cursor that overlap, that end in the middle of a poll, or that its end overtakes. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, ConnectionError, CorruptionError, StorageError } from "@millrace/contract"
import { FakeClient, textOf } from "../consumer/fake-session.test-support.ts"
import type { CursorView } from "./cursor-view.ts"
import { LogCursor, openCursor } from "./log-cursor.ts"

/** A cursor over ten records whose view fails with this error at offset 4, as often as it is asked. */
function failingAtFour(client: FakeClient, error: unknown): LogCursor<string> {
  client.put(0, 10)
  const view: CursorView<string> = {
    result(message) {
      if (message.position.offset === 4n) throw error
      return { kind: "record", value: textOf(message), message }
    },
  }
  return new LogCursor(client.context, client.topic, { what: "the cursor", options: undefined, view })
}

describe("overlapping calls of a cursor", () => {
  test("are told of the end only at the end, however many shared a poll", async () => {
    const client = new FakeClient()
    client.put(0, 10_500)
    const cursor = await openCursor(client.context, client.topic)
    const results = await Promise.all(Array.from({ length: 10_501 }, () => cursor.next()))
    const ends = results.flatMap(({ kind }, index) => (kind === "end" ? [index] : []))
    assert.deepEqual(ends, [10_500])
    await cursor[Symbol.asyncDispose]()
  })

  test("each have a poll with records, while there are any", async () => {
    const client = new FakeClient()
    client.put(0, 15_000)
    const cursor = await openCursor(client.context, client.topic)
    const polls = await Promise.all([cursor.poll(), cursor.poll(), cursor.poll()])
    assert.deepEqual(
      polls.map(({ length }) => length),
      [10_000, 5000, 0],
    )
    await cursor[Symbol.asyncDispose]()
  })
})

describe("what fails in the middle of a poll", () => {
  test("is told behind the records before it, none of which is lost", async () => {
    const client = new FakeClient()
    const cursor = failingAtFour(client, new StorageError("broken"))
    assert.equal((await cursor.poll()).length, 4)
    await assert.rejects(cursor.poll(), StorageError)
    assert.deepEqual(
      (await cursor.poll()).map((result) => result.kind === "record" && result.value),
      ["5", "6", "7", "8", "9"],
    )
    await cursor[Symbol.asyncDispose]()
  })

  test("is forgotten by `restore`", async () => {
    const client = new FakeClient()
    const cursor = failingAtFour(client, new StorageError("broken"))
    assert.equal((await cursor.poll()).length, 4)
    cursor.restore(new Map([[0, 5n]]))
    assert.equal((await cursor.poll()).length, 5)
    await cursor[Symbol.asyncDispose]()
  })

  test("is an error in its place when it is one damaged record", async () => {
    const client = new FakeClient()
    const cursor = failingAtFour(client, new CorruptionError("its parts contradict each other"))
    const results = await cursor.poll()
    assert.equal(results.length, 10)
    const { kind, position } = results[4] as { readonly kind: string; readonly position: unknown }
    assert.deepEqual([kind, position], ["error", { partition: 0, offset: 4n }])
    await cursor[Symbol.asyncDispose]()
  })
})

test("a cursor that is closed while a poll fails says that it was closed, and leaves no timer", async () => {
  const client = new FakeClient()
  client.put(0, 1)
  const view: CursorView<string> = {
    result: (message) => ({ kind: "record", value: textOf(message), message }),
    prepare: (_, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(new ConnectionError("cut off")))
      }),
  }
  const cursor = new LogCursor(client.context, client.topic, { what: "the cursor", options: undefined, view })
  const read = assert.rejects(cursor.next(), ClosedError)
  await client.settle()
  await cursor[Symbol.asyncDispose]()
  await client.settle()
  assert.equal(client.clock.timers, 0)
  await read
})
