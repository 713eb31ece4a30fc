/** Chapter: positions that are not in the log, records that cannot be read, topics that go and come back under a reader. The rules are those of docs/positions.md. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type ConsumerOptions, encryptor, type Skip, type SourceChange, type Topic } from "millrace"
import { type ClientRig, encode, fill, fillOneByOne, nothingComes, take, takeTexts } from "../rig/client-rig.ts"
import { isPending, patienceMs, settlesWithin, until } from "../rig/deadline.ts"
import { storedBy } from "../rig/progress.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

const disabled: ConsumerOptions = { commitPolicy: { kind: "disabled" } }
const ours = encryptor({ current: "ours", keys: { ours: new Uint8Array(32).fill(1) } })
const foreign = encryptor({ current: "other", keys: { other: new Uint8Array(32).fill(2) } })

/** How a consumer comes to a position behind the end. */
const beyond = ["startAt", "stored", "seek"] as const

export function outOfPlaceChapter(rig: ClientRig): void {
  describe("a position behind the end (A-13)", () => {
    for (const how of beyond) {
      test(`by ${how}: goes to the first record, to the end, or fails with both numbers, as onOutOfRange has it`, async (t) => {
        const { range } = rig.client.manifest.offsets
        if (how === "stored" && range !== "any") return t.skip("offsets behind the end cannot be stored")
        const topic = await rig.filled(4)
        const first = await at100(topic, how, { onOutOfRange: "first" })
        const skipped: Skip[] = []
        first.on({ skipped: (skip) => void skipped.push(skip) })
        assert.deepEqual(await takeTexts(first, 2), ["r0", "r1"])
        assert.deepEqual(
          skipped.map(({ from, to, count }) => [from, to, count]),
          [[100n, 0n, 0n]],
          "it is told, and nothing was passed over",
        )
        await first.shutdown()
        const failing = await at100(topic, how, { onOutOfRange: "fail" })
        const error = await refused(() => failing.nextWithin(patienceMs), {
          kind: "offset-out-of-range",
          says: ["100", /[34]/],
        })
        assert.equal(error.context.partition, 0)
        await failing.seek(0, { kind: "offset", value: 3n })
        assert.deepEqual(await takeTexts(failing, 1), ["r3"], "a seek ends the failure")
        await failing.shutdown()
        const next = await at100(topic, how, { onOutOfRange: "next" })
        await nothingComes(next, 100)
        await fill(topic, ["r4"])
        assert.deepEqual(await takeTexts(next, 1), ["r4"])
        await next.shutdown()
      })
    }

    test("what retention takes from under a reader is told with its count, and reading goes on behind it", async (t) => {
      const { trim } = rig.client.manifest.catalog
      if (!trim.supported) return t.skip(trim.reason)
      const topic = await rig.topic()
      await fillOneByOne(topic, numbered("r", 0, 12))
      const consumer = topic.consumer("reader", 0, { ...disabled, batchLength: 2, prefetchRecords: 2, maxBytes: 1 })
      const skipped: Skip[] = []
      consumer.on({ skipped: (skip) => void skipped.push(skip) })
      await take(consumer, 2)
      await topic.trim(0, 10n)
      const seen: bigint[] = [1n]
      while (seen.at(-1) !== 11n) seen.push((await take(consumer, 1))[0]?.position.offset as bigint)
      const gaps = seen.slice(1).map((offset, index) => offset - (seen[index] as bigint) - 1n)
      assert.ok(
        gaps.every((gap) => gap >= 0n),
        `${seen.join(", ")}: never back`,
      )
      assert.equal(
        skipped.reduce((sum, { count }) => sum + count, 0n),
        gaps.reduce((sum, gap) => sum + gap, 0n),
        "every record that was passed over is told",
      )
      await consumer.shutdown()
    })
  })

  describe("a replay", () => {
    test("begins where startAt says each time, and does not take progress back", async () => {
      const topic = await rig.filled(6)
      const first = topic.consumer("reader", 0, disabled)
      await first.storeOffset(4n)
      await first.shutdown()
      for (const value of [2n, 0n]) {
        const replay = topic.consumer("reader", 0, {
          startAt: { kind: "offset", value },
          allowReplay: true,
          commitPolicy: { kind: "each" },
        })
        assert.deepEqual(await takeTexts(replay, 2), [`r${value}`, `r${value + 1n}`])
        await replay.shutdown()
        assert.equal(await storedBy(topic, "reader"), 4n)
      }
      const last = topic.consumer("reader", 0, { startAt: { kind: "last" }, allowReplay: true })
      assert.deepEqual(await takeTexts(last, 1), ["r5"])
      await last.shutdown()
      assert.equal(await storedBy(topic, "reader"), 5n)
    })

    test("a seek back, too: what comes again does not take progress back, and what is new takes it on", async () => {
      const topic = await rig.filled(6)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      await take(consumer, 5)
      await consumer.seek(0, { kind: "first" })
      assert.deepEqual(await takeTexts(consumer, 2), ["r0", "r1"])
      assert.equal(await storedBy(topic, "reader"), 3n)
      assert.deepEqual(await takeTexts(consumer, 4), ["r2", "r3", "r4", "r5"])
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 5n)
    })

    test("a call that waits at the end is served by a seek", async () => {
      const topic = await rig.filled(3)
      const consumer = topic.consumer("reader", 0, { ...disabled, maxWaitMs: 60_000 })
      await take(consumer, 3)
      const waiting = consumer.nextWithin(patienceMs)
      assert.ok(await isPending(waiting))
      const started = performance.now()
      await consumer.seek(0, { kind: "offset", value: 1n })
      assert.equal(text((await waiting).payload), "r1")
      assert.ok(performance.now() - started < 3_000, "the poll under way is not waited for")
      await consumer.shutdown()
    })

    test("of two seeks the later one counts, and places that cannot be are refused by what they are", async () => {
      const topic = await rig.filled(5)
      const consumer = topic.consumer("reader", 0, disabled)
      await take(consumer, 1)
      await Promise.all([consumer.seek(0, { kind: "last" }), consumer.seek(0, { kind: "offset", value: 2n })])
      assert.deepEqual(await takeTexts(consumer, 1), ["r2"])
      await refused(() => consumer.seek(0, { kind: "offset", value: -1n }), { kind: "invalid", says: ["-1"] })
      await refused(() => consumer.seek(0, { kind: "earliest" } as never), {
        kind: "invalid",
        says: ["earliest", "first"],
      })
      await refused(() => consumer.seek(7, { kind: "first" }), { kind: "invalid", says: ["7"] })
      await refused(() => consumer.pause([7]), { kind: "invalid", says: ["7"] })
      assert.deepEqual(await takeTexts(consumer, 1), ["r3"])
      await consumer.shutdown()
    })
  })

  describe("a record that cannot be read", () => {
    for (const kind of ["disabled", "each"] as const) {
      test(`policy ${kind}: is an error in its place; skip goes past it, and counts it as handled`, async () => {
        const topic = await rig.topic()
        const send = async (payload: string, how: typeof ours): Promise<void> => {
          await using producer = topic.producer({ encryptor: how })
          await producer.send(encode(payload), { partition: 0 })
        }
        await send("r0", ours)
        await send("not ours", foreign)
        await send("r2", ours)
        const consumer = topic.consumer("reader", 0, { encryptor: ours, commitPolicy: { kind } })
        assert.deepEqual(await takeTexts(consumer, 1), ["r0"])
        const error = await refused(() => consumer.nextWithin(patienceMs), "decode")
        assert.deepEqual([error.context.partition, error.context.offset], [0, 1n])
        await consumer.seek(0, "skip")
        assert.deepEqual(await takeTexts(consumer, 1), ["r2"])
        await refused(() => consumer.seek(0, "skip"), { kind: "invalid", says: ["skip"] })
        if (kind === "disabled") await consumer.commit()
        await consumer.shutdown()
        assert.equal(await storedBy(topic, "reader"), 2n)
      })
    }

    test("without a skip nothing goes past it for good: it comes again to the next consumer", async () => {
      const topic = await rig.topic()
      await using producer = topic.producer({ encryptor: foreign })
      await producer.send(encode("not ours"), { partition: 0 })
      for (let round = 0; round < 2; round++) {
        const consumer = topic.consumer("reader", 0, { encryptor: ours, commitPolicy: { kind: "each" } })
        const error = await refused(() => consumer.nextWithin(patienceMs), "decode")
        assert.equal(error.context.offset, 0n)
        await consumer.shutdown()
      }
      assert.equal(await storedBy(topic, "reader"), undefined)
    })
  })

  describe("a topic that goes", () => {
    test("is a NotFoundError at each read, and read from its start once it is there again; the change is told once", async () => {
      const topic = await rig.filled(3)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" }, pollingRetryIntervalMs: 50 })
      const changes: SourceChange[] = []
      consumer.on({ sourceChanged: (change) => void changes.push(change) })
      await take(consumer, 3)
      await topic.delete()
      await refused(() => consumer.nextWithin(patienceMs), { kind: "not-found", says: [topic.stream] })
      await topic.ensure(1)
      await fill(topic, ["new0", "new1"])
      const seen = await until("the new topic to be read", async () => {
        try {
          return text((await consumer.nextWithin(1_000)).payload)
        } catch (error) {
          const { kind } = error as { kind?: unknown }
          if (kind !== "not-found" && kind !== "timeout") throw error
          return undefined
        }
      })
      assert.equal(seen, "new0")
      assert.deepEqual(await takeTexts(consumer, 1), ["new1"])
      assert.equal(changes.length, 1)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 1n)
    })

    test("ends nothing that waits: a shutdown meanwhile settles, and so does the waiting call", async () => {
      const topic = await rig.filled(1)
      const consumer = topic.consumer("reader", 0, { onMissing: "wait", pollingRetryIntervalMs: 50 })
      await take(consumer, 1)
      await topic.delete()
      const waiting = consumer.next()
      assert.ok(await isPending(waiting))
      await settlesWithin(
        "a shutdown without a topic",
        consumer.shutdown().catch(() => {}),
      )
      assert.equal((await settlesWithin("a call without a topic", waiting)).done, true)
    })
  })
}

/** A consumer of "reader" that has come to offset 100 of a partition that ends at 4. */
async function at100(
  topic: Topic,
  how: (typeof beyond)[number],
  options: ConsumerOptions,
): Promise<ReturnType<Topic["consumer"]>> {
  const base: ConsumerOptions = { ...disabled, ...options }
  if (how === "startAt") return topic.consumer("reader", 0, { ...base, startAt: { kind: "offset", value: 100n } })
  const consumer = topic.consumer("reader", 0, base)
  if (how === "seek") {
    await take(consumer, 1)
    await consumer.seek(0, { kind: "offset", value: 100n })
    return consumer
  }
  await consumer.storeOffset(99n)
  await consumer.shutdown()
  return topic.consumer("reader", 0, base)
}
