/** Chapter: batches going in: order, offsets, limits of the writer, splitting, many at once. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type AppendResult, splitId } from "@millrace/contract"
import { bytes, numbered, text, texts, wire } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import type { Rig } from "../rig/rig.ts"

export function appendChapter(rig: Rig): void {
  describe("append", () => {
    test("records of a batch get one offset after another, and the confirmation names the first", async () => {
      const topic = await rig.topic()
      const first = await rig.append(topic, 0, ["a", "b", "c"])
      const second = await rig.append(topic, 0, ["d"])
      if (rig.manifest.append.inFlight.offsets > 0) {
        confirmed(first, 0n)
        confirmed(second, 3n)
      }
      const seen = await rig.readAll(topic, 0)
      assert.deepEqual(texts(seen), ["a", "b", "c", "d"])
      assert.deepEqual(
        seen.map((record) => record.offset),
        [0n, 1n, 2n, 3n],
      )
    })

    test("batches of one partition land in the order of the calls, also when none is awaited", async () => {
      const topic = await rig.topic()
      const results = await Promise.all(
        Array.from({ length: 60 }, (_, index) => rig.append(topic, 0, numbered("r", index * 5, index * 5 + 5))),
      )
      assert.deepEqual(texts(await rig.readAll(topic, 0)), numbered("r", 0, 300))
      if (rig.manifest.append.inFlight.offsets === 0) return
      for (const [index, result] of results.entries()) confirmed(result, BigInt(index * 5))
    })

    test("partitions count for themselves", async () => {
      const topic = await rig.topic({ partitions: 3 })
      await Promise.all(
        [0, 1, 2, 0, 1, 0].map((partition, index) => rig.append(topic, partition, [`${partition}:${index}`])),
      )
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["0:0", "0:3", "0:5"])
      assert.deepEqual(texts(await rig.readAll(topic, 1)), ["1:1", "1:4"])
      assert.deepEqual(texts(await rig.readAll(topic, 2)), ["2:2"])
      assert.equal((await rig.watermarks(topic, 0)).end, 3n)
      assert.equal((await rig.watermarks(topic, 2)).end, 1n)
    })

    test("what the manifest says that batches can be compressed with makes them smaller, and comes back as it was", async () => {
      const { compression, inFlight } = rig.manifest.append
      assert.ok(compression.includes("none"))
      const topic = await rig.topic()
      const drafts = numbered("the same text again and again, number ", 0, 200)
      const sizes = new Map<string, number>()
      for (const codec of compression) {
        const limits = { records: 200, bytes: rig.manifest.limits.batchBytes, compression: codec }
        const writer = rig.session.log.writer(topic, 0, limits)
        for (const draft of drafts) assert.ok(writer.tryAppend(wire(draft)))
        const batch = writer.seal({ id: rig.batchId(), timestampMicros: rig.now(), resend: false })
        sizes.set(codec, batch.bytes)
        const result = await rig.session.log.append(batch, {})
        if (inFlight.offsets > 0) confirmed(result, BigInt(200 * (sizes.size - 1)))
        batch.release()
      }
      const plain = sizes.get("none") as number
      for (const [codec, size] of sizes) {
        if (codec !== "none") assert.ok(size < plain / 2, `${codec} makes ${size} bytes of ${plain}`)
      }
      const seen = texts(await rig.readAll(topic, 0))
      assert.deepEqual(seen, Array.from(compression, () => drafts).flat())
    })

    test("two sessions that write at once interleave whole batches and lose none", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      const other = await rig.connect()
      const write = async (session: typeof other, prefix: string): Promise<void> => {
        for (let batch = 0; batch < 25; batch++) {
          await rig.append(topic, 0, numbered(prefix, batch * 4, batch * 4 + 4), { session })
        }
      }
      await Promise.all([write(rig.session, "a"), write(other, "b")])
      await other.close()
      const seen = texts(await rig.readAll(topic, 0))
      assert.equal(seen.length, 200)
      for (const prefix of ["a", "b"]) {
        assert.deepEqual(
          seen.filter((one) => one.startsWith(prefix)),
          numbered(prefix, 0, 100),
        )
      }
      for (let start = 0; start < seen.length; start += 4) {
        const prefix = seen[start]?.[0]
        assert.ok(
          seen.slice(start, start + 4).every((one) => one[0] === prefix),
          `a batch was torn apart at offset ${start}`,
        )
      }
    })

    test("a failed batch leaves its neighbours alone", async () => {
      const good = await rig.topic()
      const doomed = await rig.topic()
      await rig.session.catalog.deleteTopic(doomed)
      const outcomes = await Promise.allSettled([
        rig.append(good, 0, ["a"]),
        rig.append(doomed, 0, ["lost"]),
        rig.append(good, 0, ["b"]),
      ])
      assert.deepEqual(
        outcomes.map((outcome) => outcome.status),
        ["fulfilled", "rejected", "fulfilled"],
      )
      const [, failed] = outcomes
      await refused(() => Promise.reject(failed?.status === "rejected" ? failed.reason : undefined), {
        kind: "not-found",
        says: [doomed.topic],
        outcome: "rejected",
      })
      assert.deepEqual(texts(await rig.readAll(good, 0)), ["a", "b"])
    })

    test("a topic that was recreated refuses batches made for the old one", async () => {
      const old = await rig.topic()
      const batch = rig.batch(old, 0, ["for the old one"])
      await rig.session.catalog.deleteTopic(old)
      const recreated = await rig.session.catalog.createTopic(old, rig.spec())
      await refused(() => rig.session.log.append(batch, {}), { kind: "not-found", outcome: "rejected" })
      batch.release()
      assert.deepEqual(await rig.readAll(recreated, 0), [])
    })

    test("append times are the backend's, and never go back", async () => {
      const topic = await rig.topic()
      const before = rig.now()
      for (let batch = 0; batch < 5; batch++) await rig.append(topic, 0, ["r"])
      const after = rig.now()
      const resolution = BigInt(rig.manifest.read.timestampResolutionMicros)
      let last = before - resolution
      for (const { timestampMicros } of await rig.readAll(topic, 0)) {
        assert.ok(timestampMicros >= last, `${timestampMicros} came after ${last}`)
        last = timestampMicros
      }
      assert.ok(last <= after + resolution, "the append time lies in the future")
    })

    test("a large batch of small records comes back whole", async () => {
      const topic = await rig.topic()
      const count = Math.min(20_000, rig.manifest.limits.batchRecords)
      await rig.append(topic, 0, numbered("", 0, count))
      assert.deepEqual(texts(await rig.readAll(topic, 0)), numbered("", 0, count))
    })
  })

  describe("batch writer", () => {
    test("a full writer refuses the next record, by count and by bytes", async () => {
      const topic = await rig.topic()
      const { log } = rig.session
      const byCount = log.writer(topic, 0, { records: 3, bytes: 1_000_000 })
      for (let index = 0; index < 3; index++) assert.ok(byCount.tryAppend(wire(`${index}`)))
      assert.equal(byCount.tryAppend(wire("one too many")), false)
      assert.equal(byCount.count, 3)

      const byBytes = log.writer(topic, 0, { records: 1000, bytes: 10_000 })
      while (byBytes.tryAppend(wire({ payload: new Uint8Array(100) }))) assert.ok(byBytes.bytes <= 10_000)
      assert.ok(byBytes.count >= 5, `${byBytes.count} records of 100 bytes in 10,000`)

      for (const writer of [byCount, byBytes]) {
        const count = writer.count
        const batch = writer.seal({ id: rig.batchId(), timestampMicros: rig.now(), resend: false })
        assert.equal(batch.count, count)
        await log.append(batch, {})
        batch.release()
      }
      assert.deepEqual(texts((await rig.readAll(topic, 0)).slice(0, 3)), ["0", "1", "2"])
    })

    test("the first record is always taken, however large", async () => {
      const topic = await rig.topic()
      const writer = rig.session.log.writer(topic, 0, { records: 10, bytes: 1_000 })
      assert.ok(writer.tryAppend(wire({ payload: new Uint8Array(50_000).fill(7) })))
      assert.equal(writer.tryAppend(wire("")), false)
      const batch = writer.seal({ id: rig.batchId(), timestampMicros: rig.now(), resend: false })
      await rig.session.log.append(batch, {})
      batch.release()
      const [seen] = await rig.readAll(topic, 0)
      assert.deepEqual(seen?.payload, new Uint8Array(50_000).fill(7))
    })

    test("nothing of a record is kept by reference", async () => {
      const topic = await rig.topic()
      const writer = rig.session.log.writer(topic, 0, { records: 10, bytes: 10_000 })
      const payload = bytes("before")
      const key = bytes("key")
      writer.tryAppend({ ...wire(""), payload, key })
      payload.fill(0x78)
      key.fill(0x78)
      const batch = writer.seal({ id: rig.batchId(), timestampMicros: rig.now(), resend: false })
      await rig.session.log.append(batch, {})
      batch.release()
      const [seen] = await rig.readAll(topic, 0)
      assert.equal(text(seen?.payload), "before")
      assert.equal(text(seen?.key), "key")
    })

    test("a sealed batch tells its records again, with ids and times, as copies that outlive it", async () => {
      const topic = await rig.topic()
      const id = rig.batchId()
      const own = (0xabcdn << 100n) | 5n
      const batch = rig.batch(
        topic,
        0,
        [
          { payload: "a", key: "k", headers: [["h", "1"]], timestampMicros: 5_000n },
          { payload: null, id: own, timestampMicros: 6_000n },
          { payload: "", timestampMicros: 7_000n },
        ],
        { id },
      )
      const records = batch.records()
      await rig.session.log.append(batch, {})
      batch.release()
      await rig.append(topic, 0, ["another batch that may use the same buffer"])
      assert.equal(records.length, 3)
      assert.equal(text(records[0]?.payload), "a")
      assert.equal(text(records[0]?.key), "k")
      assert.deepEqual(records[0]?.headers.get("h")?.value, "1")
      assert.equal(records[0]?.timestampMicros, 5_000n)
      assert.equal(records[1]?.payload, null)
      assert.deepEqual(records[2]?.payload, new Uint8Array(0))
      assert.deepEqual(
        records.map((record) => record.id),
        [id, own, id + 2n],
      )
    })

    test("a batch splits into two with the same records and ids, which can be split again", async () => {
      const topic = await rig.topic()
      const id = rig.batchId()
      const whole = rig.batch(topic, 0, numbered("r", 0, 7), { id })
      const [left, right] = whole.split()
      assert.equal(left.count + right.count, 7)
      assert.ok(left.count >= 1 && right.count >= 1)
      const parts = left.count > 1 ? [...left.split(), right] : [left, right]
      const ids = parts.flatMap((part) => part.records().map((record) => record.id))
      assert.deepEqual(
        ids,
        Array.from({ length: 7 }, (_, index) => id + BigInt(index)),
      )
      for (const part of parts) {
        await rig.session.log.append(part, {})
        part.release()
      }
      const seen = await rig.readAll(topic, 0)
      assert.deepEqual(texts(seen), numbered("r", 0, 7))
      if (rig.manifest.read.ids === "given") return
      assert.deepEqual(
        seen.map((record) => record.id),
        ids,
      )
      assert.ok(seen.every((record) => record.id !== undefined && splitId(record.id).batch === id))
    })

    test("a batch that is released while its append is under way is stored as it was", async () => {
      const topic = await rig.topic()
      const appends = Array.from({ length: 30 }, (_, index) => {
        const batch = rig.batch(topic, 0, [{ payload: new Uint8Array(5_000).fill(index) }])
        const result = rig.session.log.append(batch, {})
        batch.release()
        return result
      })
      await Promise.all(appends)
      const seen = await rig.readAll(topic, 0)
      assert.equal(seen.length, 30)
      for (const [index, record] of seen.entries()) {
        assert.deepEqual(record.payload, new Uint8Array(5_000).fill(index), `record ${index}`)
      }
    })
  })
}

function confirmed(result: AppendResult, base: bigint): void {
  assert.equal(result.base, base)
  assert.equal(result.contiguous, true)
  assert.equal(result.duplicates, 0)
}
