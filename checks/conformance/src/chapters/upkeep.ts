/** Chapter: what changes a topic that lives: more partitions, trim, purge, expiry and size retention. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { OffsetOutOfRangeError, type TopicDescription, type TopicSpec } from "@millrace/contract"
import { until } from "../rig/deadline.ts"
import { numbered, type Seen, texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

export function upkeepChapter(rig: Rig): void {
  describe("upkeep", () => {
    test("partitions that are added begin empty and leave the others alone", async (t) => {
      const capability = rig.manifest.catalog.addPartitions
      if (!capability.supported) return t.skip(capability.reason)
      const topic = await rig.topic({ partitions: 2 })
      await rig.append(topic, 1, ["before"])
      const grown = await rig.session.catalog.addPartitions(topic, 2)
      assert.deepEqual(
        grown.partitions.map((entry) => entry.partition),
        [0, 1, 2, 3],
      )
      assert.equal(grown.lineage, topic.lineage)
      assert.deepEqual(await rig.session.catalog.describeTopic(topic), grown)
      assert.equal((await rig.append(grown, 3, ["after"])).base, 0n)
      assert.deepEqual(texts(await rig.readAll(grown, 1)), ["before"])
      assert.deepEqual(texts(await rig.readAll(grown, 3)), ["after"])
    })

    test("a trim removes whole batches below an offset, and never a record at or behind it", async (t) => {
      const capability = rig.manifest.catalog.trim
      if (!capability.supported) return t.skip(capability.reason)
      const topic = await rig.topic({ partitions: 2 })
      for (let batch = 0; batch < 4; batch++) await rig.append(topic, 0, numbered("r", batch * 3, batch * 3 + 3))
      await rig.append(topic, 1, ["other"])

      const nothing = await rig.session.catalog.trim(at(topic, 0), 2n)
      assert.ok(nothing.first <= 2n, `first is ${nothing.first} after a trim before 2`)
      const some = await rig.session.catalog.trim(at(topic, 0), 7n)
      assert.ok(some.first === 6n || some.first === 7n, `first is ${some.first} after a trim before 7`)
      assert.equal(some.end, 12n)
      assert.deepEqual(await rig.watermarks(topic, 0), some)
      assert.deepEqual(texts(await rig.readAll(topic, 0)), numbered("r", Number(some.first), 12))
      assert.deepEqual(texts(await rig.readAll(topic, 1)), ["other"])
    })

    test("a trim at the end empties the partition, and offsets go on counting", async (t) => {
      const capability = rig.manifest.catalog.trim
      if (!capability.supported) return t.skip(capability.reason)
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("r", 0, 5))
      const empty = await rig.session.catalog.trim(at(topic, 0), 5n)
      assert.equal(empty.first, 5n)
      assert.equal(empty.end, 5n)
      assert.equal((await rig.append(topic, 0, ["next"])).base, 5n)
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["next"])
    })

    test("a purge removes every record of every partition", async () => {
      const topic = await rig.topic({ partitions: 2 })
      await rig.append(topic, 0, numbered("r", 0, 4))
      await rig.append(topic, 1, numbered("s", 0, 4))
      await rig.session.catalog.purgeTopic(topic)
      const purged = await rig.session.catalog.describeTopic(topic)
      for (const partition of [0, 1]) assert.deepEqual(await rig.readAll(purged, partition), [])
      const { base } = await rig.append(purged, 0, ["new"])
      if (rig.manifest.catalog.purge === "restarts") {
        assert.notEqual(purged.lineage, topic.lineage)
        assert.equal(base, 0n)
      } else {
        assert.equal(purged.lineage, topic.lineage)
        assert.equal(base, 4n)
      }
    })

    test("a batch that was begun before a purge still finds its topic", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, ["old"])
      const batch = rig.batch(topic, 0, ["begun before"])
      await rig.session.catalog.purgeTopic(topic)
      await rig.session.log.append(batch, {})
      batch.release()
      assert.deepEqual(texts(await rig.readAll(await rig.session.catalog.describeTopic(topic), 0)), ["begun before"])
    })

    test("expired records leave the log, oldest first", async (t) => {
      const capability = rig.manifest.catalog.expiry
      if (!capability.supported) return t.skip(capability.reason)
      const topic = await rig.topic({ expireAfterMs: shortestExpiryMs, ...eagerly(rig) })
      for (let batch = 0; batch < 3; batch++) await rig.append(topic, 0, [weighty(rig, "first")])
      await grownUntil(rig, topic, (first) => first >= 3n)
      await readWhileRetaining(rig, topic)
      await refusedBehindRetention(rig, topic)
    })

    test("a topic above its size loses its oldest batches, never its newest", async (t) => {
      const capability = rig.manifest.catalog.sizeRetention
      if (!capability.supported) return t.skip(capability.reason)
      const bytes = rig.under.eagerRetention?.recordBytes ?? 10_000
      const topic = await rig.topic({ maxBytes: BigInt(10 * bytes), ...eagerly(rig) })
      const block = { payload: new Uint8Array(bytes) }
      for (let batch = 0; batch < 20; batch++) await rig.append(topic, 0, [block])
      const kept = await until("the oldest batches to go", async () => {
        const { first, end } = await rig.watermarks(topic, 0)
        return first >= 6n ? end - first : undefined
      })
      assert.ok(kept >= 1n && kept <= 14n, `${kept} batches are left where 10 fit`)
      const seen = await readWhileRetaining(rig, topic)
      assert.equal(seen.at(-1)?.offset, 19n, "the newest record stays")
      await refusedBehindRetention(rig, topic)
    })
  })
}

/** No backend takes less. */
const shortestExpiryMs = 100

/** A record that is large enough for a backend that retains in large pieces. */
function weighty(rig: Rig, payload: string): { payload: Uint8Array } {
  const bytes = new Uint8Array(Math.max(payload.length, rig.under.eagerRetention?.recordBytes ?? 0))
  new TextEncoder().encodeInto(payload, bytes)
  return { payload: bytes }
}

function eagerly(rig: Rig): Partial<TopicSpec> {
  const native = rig.under.eagerRetention?.native
  return native === undefined ? {} : { native }
}

/** Retention may work on the way of an append, so a topic that nobody writes to proves nothing: one record a poll. */
async function grownUntil(rig: Rig, topic: TopicDescription, enough: (first: bigint) => boolean): Promise<void> {
  await until("retention to move the first offset", async () => {
    await rig.append(topic, 0, [weighty(rig, "tick")])
    const { first } = await rig.watermarks(topic, 0)
    return enough(first) ? true : undefined
  })
}

/** Records go on leaving meanwhile: what is read is the newest, without a gap, and between what the watermarks say before and after. */
async function readWhileRetaining(rig: Rig, topic: TopicDescription): Promise<readonly Seen[]> {
  const before = await rig.watermarks(topic, 0)
  const seen = await until("a read that no retention overtakes", () =>
    rig.readAll(topic, 0).catch((error: unknown) => {
      if (error instanceof OffsetOutOfRangeError) return undefined
      throw error
    }),
  )
  const after = await rig.watermarks(topic, 0)
  const most = Number(before.end - before.first)
  const least = Number(after.end - after.first)
  assert.ok(seen.length <= most && seen.length >= least, `${seen.length} records were read, of ${least} to ${most}`)
  assert.deepEqual(
    seen.map(({ offset }) => offset),
    seen.map((_, index) => before.end - BigInt(seen.length - index)),
    "what is left is the newest, without a gap",
  )
  return seen
}

/** A reader behind what is retained learns where it stands and where it could go on. */
async function refusedBehindRetention(rig: Rig, topic: TopicDescription): Promise<void> {
  const tail = rig.tail(topic, { 0: 0n })
  const error = await tail.failure(0)
  await tail.close()
  await refused(() => Promise.reject(error), { kind: "offset-out-of-range", says: ["0"] })
  assert.equal(error.context.offset, 0n)
  assert.equal(typeof error.context.first, "bigint")
  assert.equal(typeof error.context.end, "bigint")
}
