/** Chapter: readers that keep their own offsets: the raw cursor and typed records. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type CursorResult, Json, type Message } from "millrace"
import { type ClientRig, fill, fillOneByOne } from "../rig/client-rig.ts"
import { numbered, text } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"

interface Reading {
  readonly n: number
}

/** Accepts `{ n: number }` and nothing else. */
function decode(value: unknown): Reading {
  if (typeof value !== "object" || value === null || typeof (value as Reading).n !== "number") {
    throw new Error(`not a reading: ${JSON.stringify(value)}`)
  }
  return value as Reading
}

export function readingChapter(rig: ClientRig): void {
  describe("cursors", () => {
    test("a replay reads every partition from the start, in the order of time, and ends", async () => {
      const topic = await rig.topic(3)
      for (let index = 0; index < 12; index++) await fillOneByOne(topic, [`r${index}`], index % 3)
      const cursor = await topic.replay()
      assert.equal(cursor.offsets.size, 0)
      const seen: string[] = []
      for await (const result of cursor.stream()) seen.push(payloadOf(result))
      assert.deepEqual(seen, numbered("r", 0, 12))
      assert.equal(cursor.offsets.size, 3)
      for (const [partition, offset] of cursor.offsets) assert.equal(offset, 4n, `partition ${partition}`)
      await cursor[Symbol.asyncDispose]()
    })

    test("offsets that were restored replace the cursor's, and what is missing begins at 0", async () => {
      const topic = await rig.topic(2)
      await fill(topic, numbered("a", 0, 4), 0)
      await fill(topic, numbered("b", 0, 4), 1)
      const cursor = await topic.replay()
      await cursor.poll()
      cursor.restore(new Map([[0, 3n]]))
      const again = (await cursor.poll()).map(payloadOf)
      assert.deepEqual(again.toSorted(), ["a3", "b0", "b1", "b2", "b3"])
      await cursor[Symbol.asyncDispose]()
    })

    test("a cursor that has caught up says end, and finds what comes later", async () => {
      const topic = await rig.topic()
      const cursor = await topic.replay()
      assert.deepEqual(await cursor.next(), { kind: "end" })
      assert.deepEqual(await cursor.poll(), [])
      await refused(() => cursor.nextWithin(30), "timeout")
      await fill(topic, ["a"])
      assert.equal(payloadOf(await cursor.nextWithin(5_000)), "a")
      assert.deepEqual(await cursor.next(), { kind: "end" })
      await cursor[Symbol.asyncDispose]()
    })

    test("a topic that does not exist reads as empty", async () => {
      const cursor = await rig.handle().replay()
      assert.deepEqual(await cursor.poll(), [])
      await cursor[Symbol.asyncDispose]()
    })

    test("a cursor stores nothing: the next one begins at the start again", async () => {
      const topic = await rig.topic()
      await fill(topic, ["a"])
      for (let round = 0; round < 2; round++) {
        const cursor = await topic.replay()
        assert.deepEqual((await cursor.poll()).map(payloadOf), ["a"])
        await cursor[Symbol.asyncDispose]()
      }
    })
  })

  describe("typed JSON", () => {
    test("values go in and come out checked, with key, partition and headers", async () => {
      const topic = await rig.topic(2)
      const readings = topic.json(new Json<Reading>(decode))
      await readings.publish({ n: 1 }, { partition: 1, headers: { h: "v" } })
      await readings.publish({ n: 2 }, { key: "k" })
      const reader = await readings.records("reader")
      const results = await reader.poll()
      const values = results.map((result) => (result.kind === "record" ? result.value.n : result.kind))
      assert.deepEqual(values.toSorted(), [1, 2])
      const first = results.find((result) => result.kind === "record" && result.value.n === 1)
      assert.ok(first?.kind === "record")
      assert.equal(first.message.position.partition, 1)
      assert.equal(first.message.headers.get("h")?.value, "v")
      await reader[Symbol.asyncDispose]()
    })

    test("a record that does not decode is told with its place, and the next read goes past it", async () => {
      const topic = await rig.topic()
      await fill(topic, ['{"n":1}', "no json", '{"n":"one"}', '{"n":2}'])
      const reader = await topic.json(new Json<Reading>(decode)).records("reader")
      const kinds: string[] = []
      for (;;) {
        const result = await reader.next()
        if (result.kind === "end") break
        if (result.kind === "record") kinds.push(`${result.value.n}`)
        if (result.kind === "error") kinds.push(`error at ${result.position.offset}`)
        if (result.kind === "error") checkedRefusal(result.error, { kind: "decode", outcome: "rejected" })
      }
      assert.deepEqual(kinds, ["1", "error at 1", "error at 2", "2"])
      await reader[Symbol.asyncDispose]()
    })

    test("a value that JSON cannot hold is refused before it is sent", async () => {
      const topic = await rig.topic()
      const readings = topic.json(new Json<Reading>(decode))
      const circular: Record<string, unknown> = { n: 1 }
      circular.self = circular
      await refused(() => readings.publish(circular as unknown as Reading), "invalid")
      assert.equal((await topic.watermarks())[0]?.end, 0n)
    })

    test("small requests give the same records", async () => {
      const topic = await rig.topic(2)
      const readings = topic.json(new Json<Reading>(decode))
      for (let n = 0; n < 20; n++) await readings.publish({ n })
      const reader = await readings.records("reader", 3)
      const values: number[] = []
      for await (const result of reader.stream()) if (result.kind === "record") values.push(result.value.n)
      assert.deepEqual(
        values.toSorted((one, other) => one - other),
        Array.from({ length: 20 }, (_, n) => n),
      )
      await reader[Symbol.asyncDispose]()
    })
  })
}

function payloadOf(result: CursorResult<Message>): string {
  return result.kind === "record" ? text(result.value.payload) : result.kind
}
