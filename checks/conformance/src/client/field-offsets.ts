/** Chapter: how neighbours lost or repeated messages by their offsets, and what is right. One test a kind of fault. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { CommitPolicy, Skip, Topic } from "millrace"
import { type ClientRig, fill, fillOneByOne, nothingComes, take, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { storedBy } from "../rig/progress.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function fieldOffsetsChapter(rig: ClientRig): void {
  describe("field reports: offsets", () => {
    test("A-04: a consumer that is shut down from its own loop ends, and hands out nothing more", async () => {
      const topic = await filled(rig, 10)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      const seen: string[] = []
      const loop = async (): Promise<void> => {
        for await (const message of consumer) {
          seen.push(text(message.payload))
          if (seen.length === 3) await consumer.shutdown()
        }
      }
      await settlesWithin("a loop that shuts its consumer down", loop())
      assert.deepEqual(seen, numbered("r", 0, 3))
      const stored = await storedBy(topic, "reader")
      assert.ok(stored === 1n || stored === 2n, `stored ${stored}: records 0 and 1 are handled, 3 and later are not`)
    })

    test("A-04: leaving the loop by break ends nothing and loses nothing", async () => {
      const topic = await filled(rig, 5)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      for await (const message of consumer) if (message.position.offset === 1n) break
      await settlesWithin("shutdown after a break", consumer.shutdown())
      const next = topic.consumer("reader", 0)
      const [again] = await takeTexts(next, 1)
      assert.ok(again === "r1" || again === "r2", `goes on at ${again}`)
      await next.shutdown()
    })

    for (const kind of ["each", "polling", "all"] as const) {
      test(`A-11: with policy ${kind} a handler that throws at message 5 of 10 leaves 5 handled, not 10`, async () => {
        const topic = await filled(rig, 10)
        const policy: CommitPolicy = { kind }
        await assert.rejects(async () => {
          await using consumer = topic.consumer("reader", 0, { commitPolicy: policy })
          for await (const message of consumer) {
            if (message.position.offset === 5n) throw new Error("the handler failed")
          }
        }, /the handler failed/)
        assert.equal(await storedBy(topic, "reader"), 4n)
        const again = topic.consumer("reader", 0)
        assert.deepEqual(await takeTexts(again, 5), numbered("r", 5, 10))
        await again.shutdown()
      })
    }

    test("A-11: without a policy a handler that throws stores nothing, and its message comes again", async () => {
      const topic = await filled(rig, 3)
      await assert.rejects(async () => {
        await using consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "disabled" } })
        for await (const message of consumer) throw new Error(`failed at ${message.position.offset}`)
      }, /failed at 0/)
      assert.equal(await storedBy(topic, "reader"), undefined)
      const again = topic.consumer("reader", 0)
      assert.deepEqual(await takeTexts(again, 3), numbered("r", 0, 3))
      await again.shutdown()
    })

    test("A-12: committing a message is enough: it does not come again, and nothing lags", async () => {
      const topic = await filled(rig, 3)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "disabled" } })
      const messages = await take(consumer, 3)
      await consumer.commit(messages[2])
      assert.deepEqual(
        (await consumer.lag()).map((entry) => entry.lag),
        [0n],
      )
      await consumer.shutdown()
      const again = topic.consumer("reader", 0)
      await nothingComes(again)
      await fill(topic, ["r3"])
      assert.deepEqual(await takeTexts(again, 1), ["r3"])
      await again.shutdown()
    })

    test("A-13: a stored position behind retention goes on at the first record, and tells how many were skipped", async (t) => {
      const { trim } = rig.client.manifest.catalog
      if (!trim.supported) return t.skip(trim.reason)
      const topic = await trimmed(rig)
      const consumer = topic.consumer("reader", 0, { onOutOfRange: "first" })
      const skipped: Skip[] = []
      consumer.on({ skipped: (skip) => void skipped.push(skip) })
      assert.deepEqual(await takeTexts(consumer, 2), ["r8", "r9"])
      assert.deepEqual(
        skipped.map(({ partition, from, to, count }) => [partition, from, to, count]),
        [[0, 6n, 8n, 2n]],
        "records 6 and 7 were never handed out",
      )
      await consumer.shutdown()
    })

    test("A-13: it goes on at the end where the consumer asks for it", async (t) => {
      const { trim } = rig.client.manifest.catalog
      if (!trim.supported) return t.skip(trim.reason)
      const topic = await trimmed(rig)
      const consumer = topic.consumer("reader", 0, { onOutOfRange: "next" })
      await nothingComes(consumer)
      await fill(topic, ["r10"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r10"])
      await consumer.shutdown()
    })

    test("A-13: it fails and names both offsets where the consumer asks for that", async (t) => {
      const { trim } = rig.client.manifest.catalog
      if (!trim.supported) return t.skip(trim.reason)
      const topic = await trimmed(rig)
      const consumer = topic.consumer("reader", 0, { onOutOfRange: "fail" })
      const error = await refused(() => consumer.nextWithin(5_000), {
        kind: "offset-out-of-range",
        says: ["6", "8"],
      })
      assert.equal(error.context.partition, 0)
      await consumer.shutdown()
    })

    test("A-13: a stored position behind the end, after a purge, belongs to another history", async () => {
      const topic = await filled(rig, 8)
      const before = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      await take(before, 8)
      await before.shutdown()
      await topic.purge()
      await fill(topic, ["new0", "new1"])
      const after = topic.consumer("reader", 0)
      assert.deepEqual(await takeTexts(after, 2), ["new0", "new1"])
      await after.shutdown()
    })

    test("A-14: a new group misses nothing that is published once its consumer is there", async () => {
      const topic = await rig.topic(2)
      const consumer = await topic.consumerGroup("fresh").consumer()
      await fill(topic, ["a", "b", "c"], 0)
      await fill(topic, ["d", "e"], 1)
      assert.deepEqual((await takeTexts(consumer, 5)).toSorted(), ["a", "b", "c", "d", "e"])
      await consumer.shutdown()
    })

    test("A-15: a start in time moves on: each record from there once, then it waits without spinning", async () => {
      const topic = await filled(rig, 60)
      const all = topic.consumer(undefined, 0)
      const times = (await take(all, 60)).map((message) => message.timestampMicros)
      await all.shutdown()
      const value = times[40] as bigint
      const first = times.indexOf(value)
      const consumer = topic.consumer("reader", 0, { startAt: { kind: "timestampMicros", value } })
      assert.deepEqual(await takeTexts(consumer, 60 - first), numbered("r", first, 60))
      const before = process.cpuUsage()
      await nothingComes(consumer, 400)
      const used = process.cpuUsage(before)
      const share = (used.user + used.system) / 400_000
      assert.ok(share < 0.5, `waiting used ${(share * 100).toFixed(0)} % of a processor`)
      await fill(topic, ["r60"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r60"])
      await consumer.shutdown()
    })

    test("A-15: a time before the start begins at the first record, one behind the end waits for the next", async () => {
      const topic = await filled(rig, 2)
      const early = topic.consumer("early", 0, { startAt: { kind: "timestampMicros", value: 1n } })
      assert.deepEqual(await takeTexts(early, 2), ["r0", "r1"])
      await early.shutdown()
      const value = BigInt(Date.now() + 3_600_000) * 1_000n
      const late = topic.consumer("late", 0, { startAt: { kind: "timestampMicros", value } })
      await nothingComes(late)
      await fill(topic, ["r2"])
      assert.deepEqual(await takeTexts(late, 1), ["r2"])
      await late.shutdown()
    })

    test("A-15: of equal times the first record is taken", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 6))
      const reader = topic.consumer(undefined, 0)
      const messages = await take(reader, 6)
      await reader.shutdown()
      const last = messages[5]?.timestampMicros as bigint
      const first = messages.findIndex((message) => message.timestampMicros === last)
      const consumer = topic.consumer("reader", 0, { startAt: { kind: "timestampMicros", value: last } })
      assert.deepEqual(await takeTexts(consumer, 1), [`r${first}`])
      await consumer.shutdown()
    })

    test("A-07: what a member did not get to before the partition moved is not handed to it, and its late commit is refused", async () => {
      const topic = await rig.topic(2)
      await fillOneByOne(topic, numbered("a", 0, 30), 0)
      await fillOneByOne(topic, numbered("b", 0, 30), 1)
      const group = topic.consumerGroup("movers")
      const settings = { commitPolicy: { kind: "disabled" }, batchLength: 100 } as const
      const first = await group.consumer(settings)
      const held = await take(first, 20)
      const moved: number[] = []
      first.on({
        revoked: (places) => void moved.push(...places.map((place) => place.partition)),
        lost: (places) => void moved.push(...places.map((place) => place.partition)),
      })
      const lastOf = (partition: number): (typeof held)[number] | undefined =>
        held.findLast((message) => message.position.partition === partition)
      for (const partition of [0, 1]) {
        const last = lastOf(partition)
        if (last !== undefined) await first.commit(last)
      }
      const second = await group.consumer(settings)
      const gained = (await take(second, 1))[0]
      assert.ok(gained !== undefined)
      const { partition, offset } = gained.position
      await until("the hand-over to be told", () => (moved.length > 0 ? true : undefined))
      assert.deepEqual(moved, [partition])
      assert.equal(
        offset,
        (lastOf(partition)?.position.offset ?? -1n) + 1n,
        "the new owner begins at the last good commit",
      )
      const late = lastOf(partition)
      if (late !== undefined) {
        await refused(() => first.commit(late), { kind: "not-assigned", says: [String(partition)] })
      }
      const rest = await take(first, 30 - held.filter((message) => message.position.partition !== partition).length)
      assert.ok(
        rest.every((message) => message.position.partition !== partition),
        "a message of the partition that moved was handed out",
      )
      await first.shutdown()
      await second.shutdown()
    })

    test("a purge under a live group consumer is reported, and reading goes on in the new history", async () => {
      const topic = await filled(rig, 4)
      const consumer = await topic.consumerGroup("readers").consumer({ commitPolicy: { kind: "each" } })
      let changes = 0
      consumer.on({
        sourceChanged: () => {
          changes++
        },
      })
      await take(consumer, 4)
      await topic.purge()
      await fill(topic, numbered("new", 0, 6))
      assert.deepEqual(await takeTexts(consumer, 6), numbered("new", 0, 6))
      if (rig.client.manifest.catalog.purge === "restarts") {
        await until("the change to be reported", () => (changes > 0 ? true : undefined))
        assert.equal(changes, 1)
      } else assert.equal(changes, 0, "a purge that trims is no other history")
      await consumer.shutdown()
      const again = await topic.consumerGroup("readers").consumer()
      await nothingComes(again)
      await again.shutdown()
    })
  })
}

async function filled(rig: ClientRig, count: number): Promise<Topic> {
  const topic = await rig.topic()
  await fillOneByOne(topic, numbered("r", 0, count))
  return topic
}

/** Ten records, 0 to 5 handled by "reader", 0 to 7 gone. */
async function trimmed(rig: ClientRig): Promise<Topic> {
  const topic = await filled(rig, 10)
  const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "disabled" } })
  await consumer.storeOffset(5n)
  await consumer.shutdown()
  await topic.trim(0, 8n)
  return topic
}
