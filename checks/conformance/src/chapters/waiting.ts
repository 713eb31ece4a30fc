/** Chapter: the long poll: what it waits for, what wakes it, and what changes while it is under way. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { isPending, settlesWithin } from "../rig/deadline.ts"
import { numbered, texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

/** Longer than any test takes: a poll that answers earlier was woken. */
const longMs = 60_000

export function waitingChapter(rig: Rig): void {
  describe("waiting", () => {
    test("a poll without a wait answers at once", async () => {
      const tail = rig.tail(await rig.topic(), { 0: 0n })
      assert.deepEqual(await tail.next({ maxWaitMs: 0 }), [])
      await tail.close()
    })

    test("a poll that nothing wakes ends when its wait is over", async () => {
      const tail = rig.tail(await rig.topic(), { 0: 0n })
      const began = performance.now()
      assert.deepEqual(await tail.next({ maxWaitMs: 150 }), [])
      const waited = performance.now() - began
      assert.ok(waited >= 140, `it answered nothing after ${waited} ms of 150`)
      await tail.close()
    })

    test("an append wakes a reader that waits", async () => {
      const topic = await rig.topic()
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.next({ maxWaitMs: longMs })
      assert.ok(await isPending(poll))
      await rig.append(topic, 0, ["a"])
      assert.deepEqual(texts(await poll), ["a"])
      await tail.close()
    })

    test("an append of another session wakes it, too", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      const other = await rig.connect()
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.next({ maxWaitMs: longMs })
      assert.ok(await isPending(poll))
      await rig.append(topic, 0, ["a"], { session: other })
      assert.deepEqual(texts(await poll), ["a"])
      await tail.close()
      await other.close()
    })

    test("a poll waits for minRecords, and hands over fewer when its wait ends", async () => {
      const topic = await rig.topic()
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.next({ minRecords: 3, maxWaitMs: longMs })
      await rig.append(topic, 0, ["a"])
      await rig.append(topic, 0, ["b"])
      assert.ok(await isPending(poll), "two of three records do not end the wait")
      await rig.append(topic, 0, ["c"])
      assert.deepEqual(texts(await poll), ["a", "b", "c"])
      await rig.append(topic, 0, ["d"])
      const seen = await tail.next({ minRecords: 5, maxWaitMs: 100 })
      const rest = seen.length === 0 ? await tail.next({ maxWaitMs: 0 }) : seen
      assert.deepEqual(texts(rest), ["d"], "what came in time is not lost with the wait")
      await tail.close()
    })

    test("minRecords counts over all partitions", async () => {
      const topic = await rig.topic({ partitions: 2 })
      const tail = rig.tail(topic, { 0: 0n, 1: 0n })
      const poll = tail.next({ minRecords: 2, maxWaitMs: longMs })
      await rig.append(topic, 0, ["a"])
      await rig.append(topic, 1, ["b"])
      assert.deepEqual(texts(await poll).toSorted(), ["a", "b"])
      await tail.close()
    })

    test("what a new partition brings counts for a poll that waits for more", async () => {
      const topic = await rig.topic({ partitions: 2 })
      await rig.append(topic, 1, ["there", "already"])
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.next({ minRecords: 3, maxWaitMs: longMs })
      await rig.append(topic, 0, ["a"])
      assert.ok(await isPending(poll))
      tail.set({ 0: 0n, 1: 0n })
      const seen = texts(await poll)
      // What wakes it may come in two answers; nothing is lost between them.
      while (seen.length < 3) seen.push(...texts(await tail.some()))
      assert.deepEqual(seen.toSorted(), ["a", "already", "there"])
      await tail.close()
    })

    test("a poll whose other limits are filled waits for no more, however many records it wants at least", async () => {
      const topic = await rig.topic({ partitions: 2 })
      for (const partition of [0, 1]) {
        for (let index = 0; index < 4; index++) await rig.append(topic, partition, [`${partition}:${index}`])
      }
      const byRecords = rig.tail(topic, { 0: 0n, 1: 0n })
      const few = await byRecords.next({ maxRecords: 3, minRecords: 100, maxWaitMs: longMs })
      assert.ok(few.length >= 1 && few.length <= 3, `${few.length} of at most 3`)
      await byRecords.close()
      const large = await rig.topic()
      for (let index = 0; index < 4; index++) await rig.append(large, 0, [{ payload: new Uint8Array(20_000) }])
      const byBytes = rig.tail(large, { 0: 0n })
      assert.ok((await byBytes.next({ maxBytes: 30_000, minRecords: 100, maxWaitMs: longMs })).length >= 1)
      await byBytes.close()
    })

    test("a wait may be longer than a timer of the system can be set", async () => {
      const topic = await rig.topic()
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.next({ maxWaitMs: 2 ** 31 })
      assert.ok(await isPending(poll))
      await new Promise((resolve) => setTimeout(resolve, 20))
      assert.ok(await isPending(poll), "the wait was over at once")
      await rig.append(topic, 0, ["a"])
      assert.deepEqual(texts(await poll), ["a"])
      await tail.close()
    })

    test("a pending poll takes note of new partitions at once", async () => {
      const topic = await rig.topic({ partitions: 2 })
      await rig.append(topic, 1, ["there already"])
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.next({ maxWaitMs: longMs })
      assert.ok(await isPending(poll))
      tail.set({ 0: 0n, 1: 0n })
      assert.deepEqual(texts(await poll), ["there already"])
      await tail.close()
    })

    test("a pending poll takes note of a new position, also a wrong one", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("r", 0, 3))
      const tail = rig.tail(topic, { 0: 3n })
      const poll = tail.next({ maxWaitMs: longMs })
      assert.ok(await isPending(poll))
      tail.set({ 0: 1n })
      assert.deepEqual(texts(await poll), ["r1", "r2"])
      const failing = tail.next({ maxWaitMs: longMs })
      assert.ok(await isPending(failing))
      tail.set({ 0: 44n })
      await failing
      assert.equal(tail.errors[0]?.error.kind, "offset-out-of-range")
      await tail.close()
    })

    test("partitions that stay are read on without a loss or a repetition when others come and go", async () => {
      const topic = await rig.topic({ partitions: 3 })
      const tail = rig.tail(topic, { 0: 0n })
      const seen: string[] = []
      for (let round = 0; round < 12; round++) {
        await rig.append(topic, 0, [`r${round}`])
        tail.set({ 0: tail.position(0) ?? 0n, ...(round % 2 === 0 ? { 1: 0n } : { 2: 0n }) })
        seen.push(...texts(await tail.some()))
      }
      assert.deepEqual(seen, numbered("r", 0, 12))
      await tail.close()
    })

    test("a partition that was taken away is not read any more", async () => {
      const topic = await rig.topic({ partitions: 2 })
      const tail = rig.tail(topic, { 0: 0n, 1: 0n })
      assert.deepEqual(await tail.next({ maxWaitMs: 0 }), [])
      tail.set({ 1: 0n })
      await rig.append(topic, 0, ["not asked for"])
      await rig.append(topic, 1, ["a"])
      assert.deepEqual(texts(await tail.some()), ["a"])
      await tail.close()
    })

    test("a reader without partitions waits until it gets some", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, ["a"])
      const tail = rig.tail(topic, {})
      assert.deepEqual(await tail.next({ maxWaitMs: 0 }), [])
      const poll = tail.next({ maxWaitMs: longMs })
      assert.ok(await isPending(poll))
      tail.set({ 0: 0n })
      assert.deepEqual(texts(await poll), ["a"])
      await tail.close()
    })

    test("closing a reader ends its poll with nothing", async () => {
      const topic = await rig.topic()
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.reader.next({ maxRecords: 1, maxBytes: 1_000, minRecords: 1, maxWaitMs: longMs })
      assert.ok(await isPending(poll))
      await tail.close()
      assert.deepEqual(await settlesWithin("the poll of a closed reader", poll), [])
      await tail.close()
    })

    test("a closed reader refuses the next poll", async () => {
      const tail = rig.tail(await rig.topic(), { 0: 0n })
      await tail.close()
      await refused(() => tail.next({ maxWaitMs: 0 }), "closed")
    })

    test("a reader that follows a writer sees every record once and in order", async () => {
      const topic = await rig.topic({ partitions: 2 })
      const tail = rig.tail(topic, { 0: 0n, 1: 0n })
      const write = async (partition: number): Promise<void> => {
        for (let batch = 0; batch < 60; batch++) {
          await rig.append(topic, partition, numbered(`${partition}:`, batch * 3, batch * 3 + 3))
        }
      }
      const [seen] = await Promise.all([tail.take(360, { maxRecords: 7 }), write(0), write(1)])
      for (const partition of [0, 1]) {
        assert.deepEqual(
          texts(seen.filter((record) => record.partition === partition)),
          numbered(`${partition}:`, 0, 180),
        )
      }
      await tail.close()
    })

    test("many readers that wait are all woken", async () => {
      const topic = await rig.topic()
      const tails = Array.from({ length: 20 }, () => rig.tail(topic, { 0: 0n }))
      const polls = tails.map((tail) => tail.next({ maxWaitMs: longMs }))
      await rig.append(topic, 0, ["a"])
      for (const seen of await Promise.all(polls)) assert.deepEqual(texts(seen), ["a"])
      await Promise.all(tails.map((tail) => tail.close()))
    })

    test("an append to another topic does not end the wait", async () => {
      const [topic, other] = [await rig.topic(), await rig.topic()]
      const tail = rig.tail(topic, { 0: 0n })
      const poll = tail.next({ maxWaitMs: longMs })
      await rig.append(other, 0, ["elsewhere"])
      assert.ok(await isPending(poll))
      await rig.append(topic, 0, ["here"])
      assert.deepEqual(texts(await poll), ["here"])
      assert.equal((await rig.watermarks(at(topic, 0), 0)).end, 1n)
      await tail.close()
    })
  })
}
