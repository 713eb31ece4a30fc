/** Chapter: what a reader answers: positions, limits, fairness, and what goes wrong in one partition only. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { numbered, type Seen, texts } from "../rig/records.ts"
import { checkedRefusal } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

export function readChapter(rig: Rig): void {
  describe("read", () => {
    test("a reader begins exactly at its position, also in the middle of a batch", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("r", 0, 5))
      await rig.append(topic, 0, numbered("r", 5, 10))
      for (const from of [0, 1, 4, 5, 7, 9]) {
        const seen = await rig.readAll(topic, 0, BigInt(from))
        assert.deepEqual(texts(seen), numbered("r", from, 10), `from ${from}`)
        assert.equal(seen[0]?.offset, BigInt(from))
      }
    })

    test("a reader at the end waits, and begins with the next record", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, ["a"])
      const tail = rig.tail(topic, { 0: 1n })
      assert.deepEqual(await tail.next({ maxWaitMs: 0 }), [])
      await rig.append(topic, 0, ["b"])
      assert.deepEqual(texts(await tail.some()), ["b"])
      await tail.close()
    })

    test("every read tells the end of the partition and where to go on", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("r", 0, 4))
      const reader = rig.session.log.openReader({ isolation: "committed" })
      reader.set([{ ...at(topic, 0), offset: 1n, lineage: topic.lineage }])
      const [read] = await reader.next({ maxRecords: 100, maxBytes: 1_000_000, minRecords: 1, maxWaitMs: 1_000 })
      assert.ok(read !== undefined && read.error === undefined)
      assert.equal(read.stream, topic.stream)
      assert.equal(read.topic, topic.topic)
      assert.equal(read.partition, 0)
      assert.equal(read.nextOffset, 4n)
      assert.equal(read.head, 4n)
      assert.equal(read.lineage, topic.lineage)
      assert.equal(read.claim, undefined)
      const [batch] = read.batches
      assert.ok(batch !== undefined && batch.lastOffset === 3n && batch.firstOffset <= 1n)
      assert.equal(batch.lastOffset - batch.firstOffset + 1n, BigInt(batch.count))
      assert.equal(batch.indexOf(99n), batch.count)
      assert.equal(batch.indexOf(batch.firstOffset), 0)
      assert.ok(batch.bytes > 0)
      await reader.close()
    })

    test("maxRecords bounds a poll, to whole batches", async () => {
      const topic = await rig.topic()
      for (let index = 0; index < 10; index++) await rig.append(topic, 0, [`r${index}`])
      const tail = rig.tail(topic, { 0: 0n })
      const polls = [await tail.next({ maxRecords: 3 }), await tail.next({ maxRecords: 3 })]
      for (const seen of polls) assert.ok(seen.length >= 1 && seen.length <= 3, `${seen.length} of at most 3`)
      await tail.close()
    })

    test("maxBytes bounds a poll, but a first batch above it comes alone", async () => {
      const topic = await rig.topic()
      const block = { payload: new Uint8Array(20_000) }
      for (let index = 0; index < 6; index++) await rig.append(topic, 0, [block])
      const tail = rig.tail(topic, { 0: 0n })
      assert.equal((await tail.next({ maxBytes: 1_000 })).length, 1)
      const two = await tail.next({ maxBytes: 50_000 })
      assert.ok(two.length >= 1 && two.length <= 2, `${two.length} batches of 20 kB in 50 kB`)
      await tail.close()
    })

    test("the limits of a poll are for all of its partitions together", async () => {
      const topic = await rig.topic({ partitions: 3 })
      const block = { payload: new Uint8Array(20_000) }
      for (const partition of [0, 1, 2]) {
        for (let index = 0; index < 3; index++) await rig.append(topic, partition, [block])
      }
      const reader = rig.session.log.openReader({ isolation: "committed" })
      reader.set([0, 1, 2].map((partition) => ({ ...at(topic, partition), offset: 0n, lineage: topic.lineage })))
      let records = 0
      for (let poll = 0; records < 9; poll++) {
        assert.ok(poll < 60, `${records} of 9 records came in ${poll} polls`)
        const reads = await reader.next({ maxRecords: 2, maxBytes: 50_000, minRecords: 1, maxWaitMs: 1_000 })
        const batches = reads.flatMap((read) => {
          if (read.error !== undefined) throw read.error
          return [...read.batches]
        })
        const [count, bytes] = [
          batches.reduce((sum, batch) => sum + batch.count, 0),
          batches.reduce((sum, batch) => sum + batch.bytes, 0),
        ]
        assert.ok(count <= 2, `${count} records of at most 2`)
        assert.ok(bytes <= 50_000 || batches.length === 1, `${bytes} bytes of at most 50,000`)
        records += count
      }
      await reader.close()
    })

    test("partitions of one reader take turns", async () => {
      const topic = await rig.topic({ partitions: 3 })
      for (let index = 0; index < 30; index++) {
        await Promise.all([0, 1, 2].map((partition) => rig.append(topic, partition, [`${partition}`])))
      }
      const tail = rig.tail(topic, { 0: 0n, 1: 0n, 2: 0n })
      const seen: Seen[] = []
      for (let poll = 0; poll < 9; poll++) seen.push(...(await tail.next({ maxRecords: 3 })))
      for (const partition of [0, 1, 2]) {
        const share = seen.filter((record) => record.partition === partition).length
        assert.ok(share >= 3, `partition ${partition} got ${share} of ${seen.length} records in 9 polls`)
      }
      await tail.close()
    })

    test("a reader that asks for many partitions gets all of each, in order", async () => {
      const topic = await rig.topic({ partitions: 8 })
      for (let batch = 0; batch < 6; batch++) {
        await Promise.all(
          Array.from({ length: 8 }, (_, partition) =>
            rig.append(topic, partition, numbered("r", batch * 3, batch * 3 + 3)),
          ),
        )
      }
      const tail = rig.tail(topic, Object.fromEntries(Array.from({ length: 8 }, (_, partition) => [partition, 0n])))
      const seen = await tail.take(8 * 18, { maxRecords: 10 })
      await tail.close()
      for (let partition = 0; partition < 8; partition++) {
        const part = seen.filter((record) => record.partition === partition)
        assert.deepEqual(texts(part), numbered("r", 0, 18))
      }
    })

    test("readers do not disturb each other", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("r", 0, 6))
      const [one, other] = [rig.tail(topic, { 0: 0n }), rig.tail(topic, { 0: 3n })]
      assert.deepEqual(texts(await one.some()), numbered("r", 0, 6))
      assert.deepEqual(texts(await other.some()), numbered("r", 3, 6))
      await Promise.all([one.close(), other.close()])
    })

    test("a position behind what a trim left is out of range, and the error tells where the log begins and ends", async (t) => {
      const capability = rig.manifest.catalog.trim
      if (!capability.supported) return t.skip(capability.reason)
      const topic = await rig.topic()
      for (let index = 0; index < 6; index++) await rig.append(topic, 0, [`r${index}`])
      await rig.session.catalog.trim(at(topic, 0), 4n)
      const tail = rig.tail(topic, { 0: 2n })
      const error = checkedRefusal(await tail.failure(0), {
        kind: "offset-out-of-range",
        says: ["2", "4", topic.topic],
        outcome: "rejected",
      })
      assert.equal(error.context.offset, 2n)
      assert.equal(error.context.first, 4n)
      assert.equal(error.context.end, 6n)
      assert.equal(error.context.partition, 0)
      tail.set({ 0: 4n })
      assert.deepEqual(texts(await tail.take(2)), ["r4", "r5"])
      await tail.close()
    })

    test("a position behind the end is out of range; the end itself is not", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, ["a", "b"])
      const tail = rig.tail(topic, { 0: 3n })
      checkedRefusal(await tail.failure(0), { kind: "offset-out-of-range", says: ["3", "2"] })
      tail.set({ 0: 2n })
      tail.errors.length = 0
      assert.deepEqual(await tail.next({ maxWaitMs: 0 }), [])
      assert.deepEqual(tail.errors, [])
      await tail.close()
    })

    test("one bad partition does not spoil the others, and is told once", async () => {
      const topic = await rig.topic({ partitions: 2 })
      await rig.append(topic, 0, ["a"])
      await rig.append(topic, 1, ["x", "y"])
      const tail = rig.tail(topic, { 0: 0n, 1: 9n, 7: 0n })
      assert.deepEqual(texts(await tail.take(1)), ["a"])
      checkedRefusal(await tail.failure(1), "offset-out-of-range")
      checkedRefusal(await tail.failure(7), { kind: "not-found", says: ["7"] })
      await rig.append(topic, 0, ["b"])
      assert.deepEqual(texts(await tail.some()), ["b"])
      assert.equal(tail.errors.length, 2, "a failed partition is not read again until it is set")
      tail.set({ 0: 2n, 1: 0n })
      assert.deepEqual(texts(await tail.take(2)), ["x", "y"])
      await tail.close()
    })

    test("a position of another history is refused", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, ["a"])
      const tail = rig.tail(topic, {})
      tail.set({ 0: 0n }, "another history")
      checkedRefusal(await tail.failure(0), { kind: "history-changed", says: [topic.topic] })
      await tail.close()
    })

    test("what was read stays readable while the reader goes on", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, [{ payload: "first", key: "k", headers: [["h", "v"]] }])
      const tail = rig.tail(topic, { 0: 0n })
      const kept = await tail.some()
      const before = structuredClone(kept.map(({ payload, key }) => ({ payload, key })))
      for (let index = 0; index < 50; index++)
        await rig.append(topic, 0, [{ payload: new Uint8Array(3_000).fill(index) }])
      await tail.take(50)
      assert.deepEqual(
        kept.map(({ payload, key }) => ({ payload, key })),
        before,
      )
      await tail.close()
    })
  })
}
