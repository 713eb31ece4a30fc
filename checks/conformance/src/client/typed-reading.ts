/** Chapter: typed readers with offsets of their own, by the rules of seed 000 ("Typed handles and readers") and table 1.7, and what they do about holes. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type CursorResult, TypedDecodeError, type TypedReader, type TypedTopic } from "millrace"
import { type ClientRig, encode, fillOneByOne } from "../rig/client-rig.ts"
import { isPending, patienceMs, settlesWithin } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { numbers } from "../rig/typed-taker.ts"

export function typedReadingChapter(rig: ClientRig): void {
  describe("typed readers", () => {
    test("have no offsets before the first poll, then the next of each partition, also of an empty one", async () => {
      const topic = await rig.topic(3)
      await topic.json(numbers).producer().sendBatch([1, 2], { partition: 1 })
      await using reader = await topic.json(numbers).records("reader")
      assert.equal(reader.offsets.size, 0)
      assert.equal((await reader.poll()).length, 2)
      assert.deepEqual(
        [...reader.offsets].toSorted(([one], [other]) => one - other),
        [
          [0, 0n],
          [1, 2n],
          [2, 0n],
        ],
      )
    })

    test("give what is there in the order of (log time, partition, offset), whatever the size of a request", async () => {
      const topic = await rig.topic(3)
      const producer = topic.json(numbers).producer()
      for (let n = 0; n < 30; n++) await producer.send(n, { partition: (n * 7) % 3 })
      await producer.shutdown()
      for (const batch of [1, 4, 1000]) {
        await using reader = await topic.json(numbers).records("reader", batch)
        const results = await reader.poll()
        const places = results.map((result) => {
          assert.ok(result.kind === "record")
          const { timestampMicros, position } = result.message
          return [timestampMicros, BigInt(position.partition), position.offset]
        })
        assert.deepEqual(places, places.toSorted(byParts), `requests of ${batch}`)
        const values = results.map((result) => (result.kind === "record" ? result.value : Number.NaN))
        assert.deepEqual(
          values.toSorted((one, other) => one - other),
          Array.from({ length: 30 }, (_, n) => n),
        )
        assert.deepEqual(await reader.poll(), [])
      }
    })

    test("can be saved behind any record, in any mixture of calls: another one that restores it gets exactly the rest", async () => {
      const topic = await rig.topic(2)
      for (let n = 0; n < 8; n++) await fillOneByOne(topic, [n % 4 === 3 ? "no json" : `${n}`], n % 2)
      const typed = topic.json(numbers)
      await using whole = await typed.records("whole")
      const all = (await whole.poll()).map(line)
      assert.equal(all.length, 8)
      await using reader = await typed.records("saved")
      for (let given = 1; given <= all.length; given++) {
        assert.equal(line(await reader.next()), all[given - 1])
        await using other = await typed.records("restored")
        other.restore(new Map(reader.offsets))
        const rest = await restOf(other)
        assert.deepEqual(rest.toSorted(), all.slice(given).toSorted(), `behind ${given}`)
      }
      assert.deepEqual(await reader.next(), { kind: "end" })
    })

    test("keep what a stop in the midst of a poll leaves over, for whatever call comes next", async () => {
      const topic = await rig.topic()
      await fillOneByOne(topic, ["0", "no json", "2", "3"])
      await using reader = await topic.json(numbers).records("reader")
      for await (const result of reader.stream()) {
        assert.equal(line(result), "0/0=0")
        break
      }
      await fillOneByOne(topic, ["4"])
      assert.deepEqual((await reader.poll()).map(line), ["0/1!", "0/2=2", "0/3=3"])
      assert.deepEqual((await reader.poll()).map(line), ["0/4=4"])
      assert.deepEqual(await reader.poll(), [])
    })

    test("restored offsets replace what was there, also in the midst of a poll; what is missing begins at 0", async () => {
      const topic = await rig.topic(2)
      await fillOneByOne(topic, ["0", "1", "2"], 0)
      await fillOneByOne(topic, ["10", "11"], 1)
      await using reader = await topic.json(numbers).records("reader")
      await reader.next()
      reader.restore(new Map([[0, 2n]]))
      assert.deepEqual([...reader.offsets], [[0, 2n]])
      assert.deepEqual((await restOf(reader)).toSorted(), ["0/2=2", "1/0=10", "1/1=11"])
      reader.restore(new Map())
      assert.equal((await restOf(reader)).length, 5)
      await refused(() => reader.restore(new Map([[0, -1n]])), { kind: "invalid", says: ["-1"] })
      await refused(() => reader.restore(new Map([[0, 1]]) as never), { kind: "invalid", says: ["1"] })
    })

    test("end when they have caught up, and find what comes later; a wait for it goes on over a time-out", async () => {
      const topic = await rig.topic()
      const typed = topic.json(numbers)
      await using reader = await typed.records("reader")
      assert.deepEqual(await reader.next(), { kind: "end" })
      for await (const result of reader.stream()) assert.fail(line(result))
      await refused(() => reader.nextWithin(20), "timeout")
      const waiting = reader.nextWithin(patienceMs)
      assert.equal(await isPending(waiting), true)
      await topic.producer().send(encode("no json"))
      assert.equal(line(await settlesWithin("a wait for a record", waiting)), "0/0!")
      await typed.publish(1)
      assert.equal(line(await reader.nextWithin(patienceMs)), "0/1=1")
      assert.deepEqual(await reader.next(), { kind: "end" })
    })

    test("tell a record that does not decode with its bytes, headers and place, and go past it", async () => {
      const topic = await rig.topic(2)
      await topic.producer().send(encode("no json"), { partition: 1, headers: { h: "v" } })
      await using reader = await topic.json(numbers).records("reader")
      const [failed] = await reader.poll()
      assert.ok(failed?.kind === "error" && failed.error instanceof TypedDecodeError)
      assert.deepEqual(failed.position, { partition: 1, offset: 0n })
      assert.equal(text(failed.error.payload), "no json")
      assert.equal(failed.error.record.headers.get("h")?.value, "v")
      assert.deepEqual(failed.error.context, { stream: topic.stream, topic: topic.name, partition: 1, offset: 0n })
      assert.ok(failed.error.cause instanceof Error)
      assert.equal(reader.offsets.get(1), 1n)
    })

    test("store nothing: whoever has the same name begins at the start, and refuse what cannot be right", async () => {
      const topic = await rig.topic()
      const typed = topic.json(numbers)
      await typed.publish(1)
      for (let round = 0; round < 2; round++) {
        await using reader = await typed.records("reader")
        assert.deepEqual((await reader.poll()).map(line), ["0/0=1"])
      }
      await refused(() => typed.records(""), { kind: "invalid", says: [/empty/] })
      await refused(() => typed.records("reader", 0), { kind: "invalid", says: ["batch", "0"] })
    })

    test("are out of use once they are disposed of, and a topic that is gone or never was reads as empty", async () => {
      const typed = rig.handle().json(numbers)
      const reader = await typed.records("reader")
      assert.deepEqual(await reader.poll(), [])
      await reader[Symbol.asyncDispose]()
      await refused(() => reader.poll(), "closed")
      await refused(() => reader.next(), "closed")
    })
  })

  describe("holes in the log", () => {
    test("A-16: what was trimmed away is passed over by typed readers and consumers, and offsets never go back", async (t) => {
      const { trim } = rig.client.manifest.catalog
      if (!trim.supported) return t.skip(trim.reason)
      const topic = await rig.topic()
      await fillOneByOne(topic, ["0", "1", "no json", "3", "4"])
      await topic.trim(0, 2n)
      const typed = topic.json(numbers)
      for (const from of [undefined, 0n, 1n, 2n]) {
        await using reader = await typed.records("reader")
        if (from !== undefined) reader.restore(new Map([[0, from]]))
        assert.deepEqual(await restOf(reader), ["0/2!", "0/3=3", "0/4=4"], `from ${from}`)
        assert.equal(reader.offsets.get(0), 5n)
      }
      const consumer = typed.consumer("worker", 0, { onDecodeError: "skip", commitPolicy: { kind: "each" } })
      assert.equal((await consumer.nextWithin(patienceMs)).value, 3)
      assert.equal((await consumer.nextWithin(patienceMs)).value, 4)
      await consumer.commit()
      assert.deepEqual(
        (await consumer.lag()).map(({ lag }) => lag),
        [0n],
      )
      await consumer.shutdown()
    })

    test("A-16: a purge begins a new history, or goes on counting; a typed reader reads what came after it, once", async () => {
      const topic = await rig.topic()
      const typed: TypedTopic<number> = topic.json(numbers)
      await fillOneByOne(topic, numbered("", 0, 3))
      await using reader = await typed.records("reader")
      assert.equal((await restOf(reader)).length, 3)
      await topic.purge()
      assert.deepEqual(await restOf(reader), [])
      await typed.publish(7)
      const [seen, ...more] = await restOf(reader)
      assert.equal(seen?.split("=")[1], "7")
      assert.deepEqual(more, [])
    })
  })
}

/** A result on one line: place, then its value, or that it has none. */
function line(result: CursorResult<number>): string {
  if (result.kind === "end") return "end"
  const { partition, offset } = result.kind === "error" ? result.position : result.message.position
  return `${partition}/${offset}${result.kind === "record" ? `=${result.value}` : "!"}`
}

async function restOf(reader: TypedReader<number>): Promise<string[]> {
  const lines: string[] = []
  for await (const result of reader.stream()) lines.push(line(result))
  return lines
}

function byParts(one: readonly bigint[], other: readonly bigint[]): number {
  for (const [index, part] of one.entries()) {
    const difference = part - (other[index] as bigint)
    if (difference !== 0n) return difference < 0n ? -1 : 1
  }
  return 0
}
