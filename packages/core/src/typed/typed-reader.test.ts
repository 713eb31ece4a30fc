/** Typed readers (seed 000, "Typed handles and readers"; table 1.7; cases ), and what a cursor does about bytes that cannot be read. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { inspect } from "node:util"
import {
  ConnectionError,
  CorruptionError,
  InvalidError,
  StorageError,
  TimeoutError,
  UnsupportedError,
} from "@millrace/contract"
import fc from "fast-check"
import type { Codec } from "../codec/codec.ts"
import type { FakeRecord } from "../consumer/fake-log.test-support.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import type { CursorResult } from "../cursor/cursor.ts"
import { openCursor } from "../cursor/log-cursor.ts"
import { TypedDecodeError } from "./typed-decode-error.ts"
import { openTypedReader, type TypedReader } from "./typed-reader.ts"
import { badDecodes, Fetching, failing, numbers, putTexts } from "./typed-rig.test-support.ts"

const utf8 = new TextEncoder()

function open<T>(client: FakeClient, codec: Codec<T>, batch?: number): TypedReader<T> {
  return openTypedReader(client.context, client.topic, { name: "r", codec, batch })
}

function seen(result: CursorResult<unknown>): unknown {
  if (result.kind === "record") return result.value
  return result.kind === "error" ? `error at ${result.position.offset}` : result.kind
}

/** Every way of reading, up to the tail. */
const doors: Readonly<Record<string, (reader: TypedReader<unknown>, client: FakeClient) => Promise<unknown[]>>> = {
  async next(reader) {
    const all: unknown[] = []
    for (let result = await reader.next(); result.kind !== "end"; result = await reader.next()) all.push(seen(result))
    return all
  },
  async poll(reader) {
    const all: unknown[] = []
    for (let results = await reader.poll(); results.length > 0; results = await reader.poll()) {
      all.push(...results.map(seen))
    }
    return all
  },
  async stream(reader) {
    const all: unknown[] = []
    for await (const result of reader.stream()) all.push(seen(result))
    return all
  },
  async nextWithin(reader, client) {
    const all: unknown[] = []
    for (;;) {
      const next = reader.nextWithin(20).catch((error: unknown) => error)
      await client.clock.advance(20)
      const result = (await next) as CursorResult<unknown>
      if (result instanceof TimeoutError) return all
      if (result instanceof Error) throw result
      all.push(seen(result))
    }
  },
}

for (const [door, read] of Object.entries(doors)) {
  describe(`a typed reader, by ${door}`, () => {
    for (const [what, bad] of Object.entries(badDecodes)) {
      test(`a decode that ${what} is an error with its position, and the next read goes past it`, async () => {
        const client = new FakeClient()
        putTexts(client, ["0", "bad", null, "bad", "4"])
        const reader = open(client, failing(bad))
        assert.deepEqual(await read(reader, client), [0, "error at 1", "tombstone", "error at 3", 4])
        assert.deepEqual([...reader.offsets], [[0, 5n]])
        putTexts(client, ["5"])
        assert.deepEqual(await read(reader, client), [5], "a later call looks again")
        await reader[Symbol.asyncDispose]()
        assert.equal(client.clock.timers, 0)
      })
    }

    test("reads over holes: offsets 0 to 9, then 50 to 59 (A-16)", async () => {
      const client = new FakeClient()
      const records = Array.from({ length: 10 }, (_, n): FakeRecord => ({ payload: utf8.encode(String(n)) }))
      client.log.put(client.place(), records)
      client.log.put(client.place(), records, { at: 50n })
      const reader = open(client, numbers)
      reader.restore(new Map([[0, 10n]]))
      const first = await reader.next()
      assert.deepEqual(first.kind === "record" && first.message.position.offset, 50n)
      assert.equal((await read(reader, client)).length, 9)
      assert.deepEqual([...reader.offsets], [[0, 60n]])
      await reader[Symbol.asyncDispose]()
    })

    test("goes past a batch that cannot be read, as an error in its place", async () => {
      const client = new FakeClient({ partitions: 2 })
      putTexts(client, ["0", "1", "2"])
      putTexts(client, ["3", "4"])
      putTexts(client, ["5", "6"])
      putTexts(client, ["70", "71"], 1)
      const context = { ...client.place(), offset: 3n, nextOffset: 5n }
      const damage = client.log.find(client.place())?.damage
      damage?.push({ offset: 3n, error: new CorruptionError("offset 3 is damaged", { context }) })
      const reader = open(client, numbers)
      const all = await read(reader, client)
      assert.deepEqual(
        all.filter((one) => typeof one === "string" || (one as number) < 70),
        [0, 1, 2, "error at 3", 5, 6],
      )
      assert.deepEqual(
        all.filter((one) => typeof one === "number" && one >= 70),
        [70, 71],
      )
      assert.deepEqual(
        new Map(reader.offsets),
        new Map([
          [0, 7n],
          [1, 2n],
        ]),
      )
      await reader[Symbol.asyncDispose]()
    })
  })
}

describe("bytes that cannot be read, for a raw cursor", () => {
  test("come right behind their partition's last record, whatever other partitions have", async () => {
    const client = new FakeClient({ partitions: 2 })
    const at = (micros: bigint): FakeRecord => ({ payload: utf8.encode("1"), timestampMicros: micros })
    client.log.put(client.place(0), [at(1n), at(3n)])
    client.log.put(client.place(0), [at(4n)])
    client.log.put(client.place(1), [at(2n), at(9n), at(10n)])
    const context = { ...client.place(), offset: 2n }
    client.log.find(client.place())?.damage.push({ offset: 2n, error: new CorruptionError("damaged", { context }) })
    const cursor = await openCursor(client.context, client.topic)
    assert.deepEqual((await cursor.poll()).map(placeOf), ["0/0", "1/0", "0/1", "0/2", "1/1", "1/2"])
    await cursor[Symbol.asyncDispose]()
  })

  test("are errors in their place; saved offsets never skip them unseen", async () => {
    const client = new FakeClient()
    putTexts(client, ["0", "1"])
    putTexts(client, ["2"])
    putTexts(client, ["3"])
    const context = { ...client.place(), offset: 2n }
    client.log.find(client.place())?.damage.push({ offset: 2n, error: new CorruptionError("damaged", { context }) })
    const cursor = await openCursor(client.context, client.topic)
    await cursor.next()
    await cursor.next()
    assert.deepEqual([...cursor.offsets], [[0, 2n]])
    const other = await openCursor(client.context, client.topic)
    other.restore(cursor.offsets)
    for (const one of [cursor, other]) {
      const result = await one.next()
      assert.ok(result.kind === "error" && result.error instanceof CorruptionError)
      assert.deepEqual(result.position, { partition: 0, offset: 2n })
      assert.deepEqual([...one.offsets], [[0, 3n]])
      const last = await one.next()
      assert.equal(last.kind === "record" && last.message.position.offset, 3n)
      assert.deepEqual(await one.next(), { kind: "end" })
      await one[Symbol.asyncDispose]()
    }
  })

  test("that need what is not there are such errors too; what is no record's own is thrown", async () => {
    for (const [error, inline] of [
      [new UnsupportedError("compressed with x", { context: { offset: 0n, nextOffset: 1n } }), true],
      [new UnsupportedError("no such thing"), false],
      [new StorageError("the disk"), false],
    ] as const) {
      const client = new FakeClient()
      putTexts(client, ["0"])
      client.log.find(client.place())?.damage.push({ offset: 0n, error })
      const cursor = await openCursor(client.context, client.topic)
      const result = await cursor.next().catch((thrown: unknown) => thrown)
      const told = (inline ? (result as { readonly error: Error }).error : result) as Error
      assert.deepEqual(
        [told.message, (result as { readonly kind: string }).kind],
        [error.message, inline ? "error" : error.kind],
      )
      await cursor[Symbol.asyncDispose]()
    }
  })
})

describe("a typed reader", () => {
  test("names itself in its errors, takes batches from 1, and has the raw bytes in its decode errors", async () => {
    const client = new FakeClient()
    assert.throws(() => open(client, numbers, 0), /reader "r" of topic "s\/t".*"batch"/)
    putTexts(client, ["bad"])
    const reader = open(client, numbers, 1)
    const result = await reader.next()
    assert.ok(result.kind === "error" && result.error instanceof TypedDecodeError)
    assert.deepEqual(result.error.payload, utf8.encode("bad"))
    assert.ok(result.error.cause instanceof Error)
    assert.doesNotMatch(inspect(result.error), /payload|98, 97, 100/)
    await reader[Symbol.asyncDispose]()
  })

  test("gives tombstones to a codec that asks for them (A-17)", async () => {
    const client = new FakeClient()
    putTexts(client, ["1", null])
    const reader = open(client, { ...failing(() => 0), decodeTombstone: () => -1 })
    assert.deepEqual((await reader.poll()).map(seen), [1, -1])
    await reader[Symbol.asyncDispose]()
  })

  test("is in the order of (time, partition, offset), and saved offsets go on with exactly what is left", async () => {
    const record = fc.record({ micros: fc.integer({ min: 0, max: 5 }), bad: fc.boolean(), null: fc.boolean() })
    const partitions = fc.array(fc.array(record, { maxLength: 12 }), { minLength: 1, maxLength: 4 })
    await fc.assert(
      fc.asyncProperty(partitions, fc.nat(40), async (all, stop) => {
        const client = new FakeClient({ partitions: all.length })
        all.forEach((records, partition) => {
          if (records.length === 0) return
          const put = records.map(
            ({ micros, bad, null: none }): FakeRecord => ({
              payload: none ? null : utf8.encode(bad ? "bad" : "1"),
              timestampMicros: BigInt(micros),
            }),
          )
          client.log.put(client.place(partition), put)
        })
        const expected = merged(all.map((records) => records.map(({ micros }) => micros)))
        const reader = open(client, numbers)
        const seenPlaces: string[] = []
        for (let read = 0; read < Math.min(stop, expected.length); read++) seenPlaces.push(placeOf(await reader.next()))
        const other = open(client, numbers)
        other.restore(reader.offsets)
        for await (const result of other.stream()) seenPlaces.push(placeOf(result))
        // What is left is merged anew, which is the same order within each partition.
        const byPartition = (places: readonly string[]): string[] => places.toSorted((a, b) => order(a) - order(b))
        assert.deepEqual(byPartition(seenPlaces), byPartition(expected), "every record once")
        assert.deepEqual(seenPlaces.slice(0, stop), expected.slice(0, stop))
        await reader[Symbol.asyncDispose]()
        await other[Symbol.asyncDispose]()
      }),
      { numRuns: 200 },
    )
  })
})

describe("a codec that has something to fetch first", () => {
  test("is asked once a poll, with all its messages, before any is decoded", async () => {
    const client = new FakeClient({ partitions: 2 })
    putTexts(client, ["1", "2"])
    putTexts(client, ["3"], 1)
    const codec = new Fetching()
    const reader = open(client, codec)
    assert.deepEqual((await reader.poll()).map(seen).toSorted(), [1, 2, 3])
    putTexts(client, ["1"])
    assert.deepEqual((await reader.poll()).map(seen), [1])
    assert.deepEqual(codec.asked, [3])
    await reader[Symbol.asyncDispose]()
    assert.equal(codec.signal?.aborted, true)
  })

  test("and cannot, fails the poll: tried five times when it may pass, told when not, and nothing moves", async () => {
    const client = new FakeClient()
    putTexts(client, ["1"])
    const codec = new Fetching()
    const reader = open(client, codec)
    codec.failures.push(new InvalidError("never"))
    await assert.rejects(reader.next(), InvalidError)
    assert.equal(reader.offsets.size, 0)
    for (let n = 0; n < 5; n++) codec.failures.push(new ConnectionError("away"))
    const failed = assert.rejects(reader.next(), ConnectionError)
    await client.clock.advance(50 + 100 + 150 + 200)
    await failed
    assert.equal(codec.failures.length, 0)
    assert.equal(reader.offsets.size, 0)
    assert.equal(seen(await reader.next()), 1)
    await reader[Symbol.asyncDispose]()
  })
})

/** `partition/offset` of what was read. */
function placeOf(result: CursorResult<unknown>): string {
  if (result.kind === "end") return "end"
  const { partition, offset } = result.kind === "error" ? result.position : result.message.position
  return `${partition}/${offset}`
}

function order(place: string): number {
  const [partition, offset] = place.split("/").map(Number)
  return (partition as number) * 1000 + (offset as number)
}

/** The order of table 1.7, the slow way: the earliest of the partitions' next records, and of two of one time that of the lower partition. */
function merged(times: readonly (readonly number[])[]): string[] {
  const next = times.map(() => 0)
  const all: string[] = []
  for (;;) {
    let best = -1
    times.forEach((micros, partition) => {
      const own = micros[next[partition] as number]
      if (own === undefined) return
      if (best < 0 || own < (times[best]?.[next[best] as number] as number)) best = partition
    })
    if (best < 0) return all
    all.push(`${best}/${next[best]}`)
    next[best] = (next[best] as number) + 1
  }
}
