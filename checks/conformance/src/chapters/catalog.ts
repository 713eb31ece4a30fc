/** Chapter: streams, topics and partitions as things that are made, described, listed and deleted. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { TopicName } from "@millrace/contract"
import { texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import type { Rig } from "../rig/rig.ts"

/** Streams that always exist (prefixes of a backend) can be neither made twice nor missed. */
const prefixes = "streams are prefixes on this backend: every stream exists"

export function catalogChapter(rig: Rig): void {
  describe("catalog", () => {
    test("a stream that was created is described and listed", async (t) => {
      if (rig.manifest.catalog.streams === "prefixes") return t.skip(prefixes)
      const stream = rig.name("stream")
      await rig.session.catalog.createStream(stream)
      const described = await rig.session.catalog.describeStream(stream)
      assert.equal(described.stream, stream)
      assert.equal(described.topics, 0)
      const listed = await rig.session.catalog.listStreams()
      assert.equal(listed.filter((entry) => entry.stream === stream).length, 1)
    })

    test("a stream cannot be created twice", async (t) => {
      if (rig.manifest.catalog.streams === "prefixes") return t.skip(prefixes)
      const stream = rig.name("stream")
      await rig.session.catalog.createStream(stream)
      const error = await refused(() => rig.session.catalog.createStream(stream), {
        kind: "already-exists",
        says: [stream],
      })
      assert.equal(error.context.stream, stream)
    })

    test("what does not exist is refused as not found, with its name", async () => {
      const { catalog } = rig.session
      const missing: TopicName = { stream: rig.name("nowhere"), topic: "nothing" }
      const spec = rig.spec()
      if (rig.manifest.catalog.streams === "objects") {
        await refused(() => catalog.describeStream(missing.stream), { kind: "not-found", says: [missing.stream] })
        await refused(() => catalog.listTopics(missing.stream), { kind: "not-found", says: [missing.stream] })
        await refused(() => catalog.createTopic(missing, spec), { kind: "not-found", says: [missing.stream] })
        await refused(() => catalog.deleteStream(missing.stream), { kind: "not-found", says: [missing.stream] })
      }
      const there = await rig.topic()
      const absent = { stream: there.stream, topic: "absent" }
      for (const call of [
        () => catalog.describeTopic(absent),
        () => catalog.purgeTopic(absent),
        () => catalog.deleteTopic(absent),
        () => catalog.addPartitions(absent, 1),
        ...(rig.manifest.catalog.trim.supported ? [() => catalog.trim({ ...absent, partition: 0 }, 1n)] : []),
      ]) {
        const error = await refused(call, {
          kind: "not-found",
          says: ["absent"],
          retryable: false,
          outcome: "rejected",
        })
        assert.equal(error.context.topic, "absent")
      }
    })

    test("a topic is described as it was made", async () => {
      const { append, offsets } = rig.manifest
      const [durability = "synced"] = append.durability.slice(-1)
      const [offsetDurability = "synced"] = offsets.durability.slice(-1)
      const windowMs = append.idLookup === "none" ? 0 : 90_000
      const made = await rig.topic({
        partitions: 3,
        durability,
        offsetDurability,
        deduplicationWindowMs: windowMs,
        deduplicateIds: append.idLookup !== "none",
        ...(rig.manifest.catalog.expiry.supported ? { expireAfterMs: 3_600_000 } : {}),
        ...(rig.manifest.catalog.sizeRetention.supported ? { maxBytes: 10_000_000n } : {}),
      })
      const described = await rig.session.catalog.describeTopic(made)
      assert.deepEqual(described, made)
      assert.deepEqual(
        described.partitions.map((entry) => entry.partition),
        [0, 1, 2],
      )
      assert.equal(described.durability, durability)
      assert.equal(described.offsetDurability, offsetDurability)
      assert.equal(described.deduplicationWindowMs, windowMs)
      if (rig.manifest.catalog.expiry.supported) assert.equal(described.expireAfterMs, 3_600_000)
      if (rig.manifest.catalog.sizeRetention.supported) {
        // Where the limit is kept for each partition it is rounded up to a whole number of bytes for each.
        const { maxBytes = 0n } = described
        assert.ok(maxBytes >= 10_000_000n && maxBytes < 10_000_003n, `${maxBytes} bytes`)
      }
      assert.notEqual(described.lineage, "")
      if (described.createdMicros === undefined) return
      const age = rig.now() - described.createdMicros
      assert.ok(age >= 0n && age < 60_000_000n, `created ${age} µs ago`)
    })

    test("settings that were left out stay absent", async () => {
      const described = await rig.session.catalog.describeTopic(await rig.topic())
      assert.equal(described.expireAfterMs, undefined)
      assert.equal(described.maxBytes, undefined)
      assert.equal(described.deduplicateIds, false)
    })

    test("a topic cannot be created twice, and the first stays as it is", async () => {
      const made = await rig.topic({ partitions: 2 })
      await rig.append(made, 0, ["kept"])
      const again = rig.spec({ partitions: 5 })
      const error = await refused(() => rig.session.catalog.createTopic(made, again), {
        kind: "already-exists",
        says: [made.topic],
      })
      assert.equal(error.context.topic, made.topic)
      assert.equal((await rig.session.catalog.describeTopic(made)).partitions.length, 2)
      assert.deepEqual(texts(await rig.readAll(made, 0)), ["kept"])
    })

    test("of many creations of one topic at once exactly one succeeds", async () => {
      const name = { stream: rig.name("stream"), topic: "contested" }
      await rig.ensureStream(name.stream)
      const attempts = Array.from({ length: 8 }, () => rig.session.catalog.createTopic(name, rig.spec()))
      const outcomes = await Promise.allSettled(attempts)
      assert.equal(outcomes.filter((outcome) => outcome.status === "fulfilled").length, 1)
      for (const outcome of outcomes) {
        if (outcome.status === "rejected") assert.equal(outcome.reason.kind, "already-exists")
      }
    })

    test("topics are listed with all their settings, and only those of the stream", async () => {
      const stream = rig.name("stream")
      await rig.ensureStream(stream)
      const made = []
      for (const topic of ["b", "a", "c"]) {
        made.push(await rig.session.catalog.createTopic({ stream, topic }, rig.spec({ partitions: 2 })))
      }
      await rig.topic()
      const listed = await rig.session.catalog.listTopics(stream)
      const byName = (one: { topic: string }, other: { topic: string }): number => one.topic.localeCompare(other.topic)
      assert.deepEqual(listed.toSorted(byName), made.toSorted(byName))
      if (rig.manifest.catalog.streams === "objects") {
        assert.equal((await rig.session.catalog.describeStream(stream)).topics, 3)
      }
    })

    test("names of every kind are kept apart", async () => {
      const pairs: readonly (readonly [string, string])[] = [
        ["a.b", "c"],
        ["a", "b.c"],
        ["a_b", "c"],
        ["a", "b_c"],
        ["a", "B_C"],
        ["a b", "c"],
        ["a", "b c"],
        ["é", "c"],
        ["e\u0301", "c"],
        ["%2e", "c"],
        [".", ".."],
        ["'; drop table topics; --", '"'],
        ["millrace", "流れ🌊"],
      ]
      const prefix = rig.name("names")
      const streams = new Set(pairs.map(([stream]) => `${prefix}${stream}`))
      for (const stream of streams) await rig.ensureStream(stream)
      for (const [stream, topic] of pairs) {
        const made = await rig.session.catalog.createTopic({ stream: `${prefix}${stream}`, topic }, rig.spec())
        await rig.append(made, 0, [`${stream}/${topic}`])
      }
      for (const [stream, topic] of pairs) {
        const found = await rig.session.catalog.describeTopic({ stream: `${prefix}${stream}`, topic })
        assert.deepEqual(texts(await rig.readAll(found, 0)), [`${stream}/${topic}`])
      }
    })

    test("a name of the greatest length is taken, in bytes of UTF-8", async () => {
      const limit = rig.manifest.limits.nameBytes
      if (rig.manifest.catalog.streams === "prefixes") {
        const name = { stream: "", topic: rig.name("topic").padEnd(limit, "t") }
        await rig.session.catalog.createTopic(name, rig.spec())
        assert.equal((await rig.session.catalog.describeTopic(name)).topic, name.topic)
        return
      }
      const stream = rig.name("stream").padEnd(limit, "s")
      const topic = `${"é".repeat(Math.floor(limit / 2))}${"t".repeat(limit % 2)}`
      await rig.ensureStream(stream)
      await rig.session.catalog.createTopic({ stream, topic }, rig.spec())
      assert.equal((await rig.session.catalog.describeTopic({ stream, topic })).topic, topic)
    })

    test("a topic of the greatest partition count can be written at both ends", async () => {
      const partitions = Math.min(rig.manifest.limits.partitions, rig.under.mostPartitions ?? Number.POSITIVE_INFINITY)
      const made = await rig.topic({ partitions })
      assert.equal(made.partitions.length, partitions)
      await rig.append(made, partitions - 1, ["last"])
      assert.deepEqual(texts(await rig.readAll(made, partitions - 1)), ["last"])
      assert.equal((await rig.watermarks(made, 0)).end, 0n)
    })

    test("a deleted topic is gone, and one of the same name is another", async () => {
      const first = await rig.topic()
      await rig.append(first, 0, ["old"])
      await rig.session.catalog.deleteTopic(first)
      await refused(() => rig.session.catalog.describeTopic(first), "not-found")
      assert.deepEqual(await rig.session.catalog.listTopics(first.stream), [])
      const second = await rig.session.catalog.createTopic(first, rig.spec())
      assert.notEqual(second.lineage, first.lineage)
      assert.deepEqual(await rig.readAll(second, 0), [])
      assert.equal((await rig.append(second, 0, ["new"])).base, 0n)
    })

    test("a deleted stream takes its topics with it", async (t) => {
      if (rig.manifest.catalog.streams === "prefixes") return t.skip(prefixes)
      const topic = await rig.topic()
      await rig.append(topic, 0, ["old"])
      await rig.session.catalog.deleteStream(topic.stream)
      await refused(() => rig.session.catalog.describeStream(topic.stream), "not-found")
      await refused(() => rig.session.catalog.describeTopic(topic), "not-found")
      await rig.session.catalog.createStream(topic.stream)
      assert.deepEqual(await rig.session.catalog.listTopics(topic.stream), [])
    })
  })
}
