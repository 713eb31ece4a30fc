import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ClosedError,
  ConnectionError,
  DecodeError,
  InvalidError,
  OffsetOutOfRangeError,
  StorageError,
  TimeoutError,
} from "@millrace/contract"
import { Json } from "../codec/json.ts"
import { FakeClient, textOf } from "../consumer/fake-session.test-support.ts"
import { openTypedReader } from "../typed/typed-reader.ts"
import type { Cursor, CursorResult } from "./cursor.ts"
import { openCursor, type ReaderOptions } from "./log-cursor.ts"

const open = (client: FakeClient, options?: ReaderOptions): ReturnType<typeof openCursor> =>
  openCursor(client.context, client.topic, options)

async function texts(cursor: Cursor<unknown>): Promise<string[]> {
  const seen: string[] = []
  for await (const result of cursor.stream()) if (result.kind === "record") seen.push(textOf(result.message))
  return seen
}

/** Records with the numbers as payloads and these times. */
function putTimed(
  client: FakeClient,
  partition: number,
  records: readonly (readonly [text: string, micros: bigint])[],
): void {
  client.log.put(
    client.place(partition),
    records.map(([text, timestampMicros]) => ({ payload: new TextEncoder().encode(text), timestampMicros })),
  )
}

async function passing<V>(client: FakeClient, call: Promise<V>, ms: number): Promise<V | unknown> {
  const outcome = call.catch((error) => error)
  await client.clock.advance(ms)
  return outcome
}

describe("a cursor", () => {
  test("reads every partition in the order of (time, partition, offset), then ends, then goes on", async () => {
    const client = new FakeClient({ partitions: 3 })
    putTimed(client, 0, [
      ["a", 10n],
      ["d", 40n],
      ["g", 50n],
    ])
    putTimed(client, 1, [
      ["b", 20n],
      ["e", 40n],
    ])
    putTimed(client, 2, [
      ["c", 30n],
      ["f", 40n],
    ])
    const cursor = await open(client)
    assert.deepEqual(await texts(cursor), ["a", "b", "c", "d", "e", "f", "g"])
    assert.deepEqual(await cursor.next(), { kind: "end" })
    putTimed(client, 1, [["h", 60n]])
    assert.deepEqual(await texts(cursor), ["h"])
    assert.deepEqual(
      [...cursor.offsets],
      [
        [0, 3n],
        [1, 3n],
        [2, 2n],
      ],
    )
    await cursor[Symbol.asyncDispose]()
    assert.equal(client.log.readers.size, 0)
    assert.equal(client.owned.size, 0)
  })

  test("keeps the order within a partition even where the times do not", async () => {
    const client = new FakeClient()
    putTimed(client, 0, [
      ["a", 50n],
      ["b", 10n],
      ["c", 30n],
    ])
    const cursor = await open(client)
    assert.deepEqual(await texts(cursor), ["a", "b", "c"])
    await cursor[Symbol.asyncDispose]()
  })

  test("reads a topic that does not exist as empty, also when it comes later", async () => {
    const client = new FakeClient()
    client.log.partitions.clear()
    const cursor = await open(client)
    assert.deepEqual(await cursor.next(), { kind: "end" })
    assert.deepEqual(await cursor.poll(), [])
    assert.equal(cursor.offsets.size, 0)
    client.log.add(client.place())
    client.put(0, 2)
    assert.deepEqual(await texts(cursor), ["0", "1"])
    await cursor[Symbol.asyncDispose]()
  })

  test("has no offsets before the first poll, and then those of what was given out", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 5, 0)
    const cursor = await open(client)
    assert.equal(cursor.offsets.size, 0)
    await cursor.next()
    assert.deepEqual(
      [...cursor.offsets],
      [
        [0, 1n],
        [1, 0n],
      ],
    )
    assert.equal((await cursor.poll()).length, 4, "first what is left of the poll before")
    assert.deepEqual(
      [...cursor.offsets],
      [
        [0, 5n],
        [1, 0n],
      ],
    )
    await cursor[Symbol.asyncDispose]()
  })

  test("goes on from restored offsets, which replace its own; what is missing begins at 0", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 4, 0)
    client.put(10, 14, 1)
    const first = await open(client)
    for (let n = 0; n < 3; n++) await first.next()
    const saved = first.offsets
    await first[Symbol.asyncDispose]()
    const second = await open(client)
    second.restore(saved)
    assert.deepEqual([...second.offsets], [...saved])
    assert.deepEqual(await texts(second), ["3", "10", "11", "12", "13"])
    second.restore(new Map([[1, 3n]]))
    assert.deepEqual(await texts(second), ["0", "1", "2", "3", "13"])
    await second[Symbol.asyncDispose]()
  })

  test("restores while a poll is under way, whose records are then not wanted", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const cursor = await open(client)
    const answer = Promise.withResolvers<void>()
    client.log.beforePoll = () => answer.promise
    const polling = cursor.next()
    await client.settle()
    cursor.restore(new Map([[0, 8n]]))
    answer.resolve()
    const result = await polling
    assert.equal(result.kind === "record" && textOf(result.message), "8")
    assert.deepEqual(await texts(cursor), ["9"])
    cursor.restore(new Map([[0, 5n]]))
    await cursor.next()
    cursor.restore(new Map([[0, 9n]]))
    assert.deepEqual(await texts(cursor), ["9"])
    await cursor[Symbol.asyncDispose]()
  })

  test("moves over retention and holes", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    client.log.trim(client.place(), 4n)
    client.log.partitions.get("s\nt\n0")?.batches.splice(0, 1)
    client.put(10, 12)
    client.log.putMarkers(client.place(), 3)
    const cursor = await open(client)
    await cursor.next()
    assert.deepEqual([...cursor.offsets], [[0, 11n]])
    await cursor.next()
    assert.deepEqual([...cursor.offsets], [[0, 15n]])
    assert.deepEqual(await cursor.next(), { kind: "end" })
    await cursor[Symbol.asyncDispose]()
  })

  test("gives at most 10,000 records of a partition with one poll", async () => {
    const client = new FakeClient()
    client.put(0, 9000)
    client.put(9000, 21_000)
    const cursor = await open(client)
    for (const count of [10_000, 10_000, 1000, 0]) assert.equal((await cursor.poll()).length, count)
    assert.deepEqual([...cursor.offsets], [[0, 21_000n]])
    await cursor[Symbol.asyncDispose]()
  })

  test("shares one poll between overlapping calls, each of which gets its own record", async () => {
    const client = new FakeClient()
    client.put(0, 2)
    const cursor = await open(client)
    const results = await Promise.all([cursor.next(), cursor.next(), cursor.next()])
    assert.deepEqual(
      results.map((result) => (result.kind === "record" ? textOf(result.message) : result.kind)),
      ["0", "1", "end"],
    )
    await cursor[Symbol.asyncDispose]()
  })
})

describe("a cursor's failures", () => {
  test("that may pass are tried five times, 50 ms × n apart", async () => {
    const client = new FakeClient()
    client.put(0, 1)
    for (let n = 0; n < 4; n++) client.log.pollFailures.push(new ConnectionError("away"))
    const cursor = await open(client)
    const read = cursor.next()
    await client.clock.advance(50 + 100 + 150 + 199)
    assert.equal(client.log.pollFailures.length, 0)
    const result = (await passing(client, read, 1)) as CursorResult<unknown>
    assert.equal(result.kind, "record")
    await cursor[Symbol.asyncDispose]()
  })

  test("leave the offsets as they were, also when one partition of several fails", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 3, 0)
    client.put(0, 3, 1)
    const cursor = await open(client)
    await cursor.poll()
    client.put(3, 6, 0)
    client.put(3, 6, 1)
    const broken = client.log.partitions.get("s\nt\n1")
    if (broken !== undefined) broken.failure = new StorageError("broken")
    await assert.rejects(cursor.next(), StorageError)
    assert.deepEqual(
      [...cursor.offsets],
      [
        [0, 3n],
        [1, 3n],
      ],
    )
    assert.equal((await cursor.poll()).length, 6)
    await cursor[Symbol.asyncDispose]()
  })

  test("an offset behind the end is told, and not waited for", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const cursor = await open(client)
    cursor.restore(new Map([[0, 9n]]))
    await assert.rejects(
      cursor.next(),
      (error) => error instanceof OffsetOutOfRangeError && /offset 9 .*end 3/.test(error.message),
    )
    await cursor[Symbol.asyncDispose]()
  })

  test("a purge begins the new history at its start", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    const cursor = await open(client)
    await texts(cursor)
    client.log.purge(client.place(), "b")
    client.put(100, 102)
    assert.deepEqual(await texts(cursor), ["100", "101"])
    await cursor[Symbol.asyncDispose]()
  })

  test("arguments that cannot be are refused", async () => {
    const client = new FakeClient()
    await assert.rejects(open(client, { batch: 0 }), InvalidError)
    const cursor = await open(client)
    for (const saved of [new Map([[-1, 0n]]), new Map([[0, -1n]]), new Map([[0, 5 as never]])]) {
      assert.throws(() => cursor.restore(saved), InvalidError)
    }
    await assert.rejects(cursor.nextWithin(-1), InvalidError)
    await cursor[Symbol.asyncDispose]()
    await assert.rejects(cursor.next(), ClosedError)
    await assert.rejects(cursor.nextWithin(5), ClosedError)
  })
})

describe("nextWithin of a cursor", () => {
  test("waits for a record that is yet to come", async () => {
    const client = new FakeClient()
    const cursor = await open(client)
    const read = cursor.nextWithin(60_000)
    await client.clock.advance(30_000)
    client.put(0, 1)
    const result = (await passing(client, read, 1)) as CursorResult<unknown>
    assert.equal(result.kind, "record")
    await cursor[Symbol.asyncDispose]()
    assert.equal(client.clock.timers, 0)
  })

  test("fails at its deadline, also while there is no topic, and leaves nothing to wait for", async () => {
    const client = new FakeClient()
    client.log.partitions.clear()
    const cursor = await open(client)
    assert.ok((await passing(client, cursor.nextWithin(1200), 1200)) instanceof TimeoutError)
    await cursor[Symbol.asyncDispose]()
    await client.settle()
    assert.equal(client.clock.timers, 0)
  })

  test("does not spin where waits end early and bring nothing (A-15)", async () => {
    const client = new FakeClient()
    client.log.answerEmptyAtOnce = true
    const cursor = await open(client)
    assert.ok((await passing(client, cursor.nextWithin(10_000), 10_000)) instanceof TimeoutError)
    assert.ok(client.log.polls <= 201, `${client.log.polls} polls in 10 s`)
    await cursor[Symbol.asyncDispose]()
    assert.equal(client.clock.timers, 0)
  })

  test("is ended by closing the cursor", async () => {
    const client = new FakeClient()
    const cursor = await open(client)
    const waiting = assert.rejects(cursor.nextWithin(60_000), ClosedError)
    await client.settle()
    await cursor[Symbol.asyncDispose]()
    await waiting
    assert.equal(client.clock.timers, 0)
  })
})

describe("a typed reader", () => {
  const codec = new Json((value) => {
    if (typeof value !== "number") throw new Error(`${JSON.stringify(value)} is not a number`)
    return value
  })

  test("gives values, errors in their place with their position, and tombstones without the codec", async () => {
    const client = new FakeClient()
    const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
    client.log.put(client.place(), [
      { payload: bytes("1") },
      { payload: bytes("{") },
      { payload: bytes('"two"') },
      { payload: null },
      { payload: new Uint8Array(0) },
      { payload: bytes("3") },
    ])
    const reader = openTypedReader(client.context, client.topic, { name: "r", codec })
    const results = await reader.poll()
    assert.deepEqual(
      results.map(({ kind }) => kind),
      ["record", "error", "error", "tombstone", "error", "record"],
    )
    const wrong = results[2] as CursorResult<number> & { kind: "error" }
    assert.ok(wrong.error instanceof DecodeError)
    assert.deepEqual(wrong.position, { partition: 0, offset: 2n })
    assert.equal(
      wrong.error.message,
      'offset 2 of partition 0 of topic "s/t" does not decode as JSON: "two" is not a number',
    )
    assert.deepEqual(wrong.error.context, { ...client.place(), offset: 2n })
    assert.deepEqual(await reader.next(), { kind: "end" })
    assert.deepEqual([...reader.offsets], [[0, 6n]])
    await reader[Symbol.asyncDispose]()
  })
})
