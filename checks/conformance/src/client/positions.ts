/** Chapter: where a consumer reads, and how it is moved, paused and resumed. The rules are those of docs/positions.md. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Message, SourceChange, StartAt, Topic } from "millrace"
import { type ClientRig, fill, fillOneByOne, nothingComes, take, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

const disabled = { commitPolicy: { kind: "disabled" } } as const

export function positionsChapter(rig: ClientRig): void {
  describe("positions", () => {
    test("seek goes to every place that a consumer can start at, and stored progress stays", async () => {
      const topic = await rig.topic()
      await fillOneByOne(topic, numbered("r", 0, 8))
      const consumer = topic.consumer("reader", 0, disabled)
      const messages = await take(consumer, 8)
      await consumer.commit(messages[2])
      const { timestampMicros } = messages[5] as Message
      const timely = messages.find((message) => message.timestampMicros >= timestampMicros) as Message
      const places: [StartAt, string][] = [
        [{ kind: "first" }, "r0"],
        [{ kind: "last" }, "r7"],
        [{ kind: "next" }, "r3"],
        [{ kind: "offset", value: (messages[4] as Message).position.offset }, "r4"],
        [{ kind: "timestampMicros", value: timestampMicros }, text(timely.payload)],
        [{ kind: "timestampMicros", value: 0n }, "r0"],
      ]
      for (const [to, expected] of places) {
        await settlesWithin(`seek to ${to.kind}`, consumer.seek(0, to))
        assert.deepEqual(await takeTexts(consumer, 1), [expected], to.kind)
      }
      assert.equal((await consumer.storedOffset())?.stored, (messages[2] as Message).position.offset)
      await consumer.shutdown()
    })

    test("seek to the end, or behind all times, waits for what comes", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 3))
      const consumer = topic.consumer("reader", 0, disabled)
      const messages = await take(consumer, 3)
      const end = (messages[2] as Message).position.offset + 1n
      await consumer.seek(0, { kind: "first" })
      await consumer.seek(0, { kind: "offset", value: end })
      await nothingComes(consumer)
      await fill(topic, ["r3"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r3"])
      await consumer.seek(0, {
        kind: "timestampMicros",
        value: (messages[2] as Message).timestampMicros + 3_600_000_000n,
      })
      await nothingComes(consumer)
      await fill(topic, ["r4"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r4"])
      await consumer.shutdown()
    })

    test("seek to skip without an error of a record is refused", async () => {
      const topic = await rig.topic()
      await fill(topic, ["r0"])
      const consumer = topic.consumer("reader", 0)
      await take(consumer, 1)
      await refused(() => consumer.seek(0, "skip"), { kind: "invalid", says: ["nothing to skip"] })
      await consumer.shutdown()
    })

    test("A-09: pause and resume with a warm read-ahead lose and repeat nothing, of 5,000 messages", async () => {
      const topic = await manyFilled(rig)
      const consumer = topic.consumer("reader", 0, { batchLength: 100, prefetchRecords: 2000 })
      const seen = await takeTexts(consumer, 150)
      consumer.pause()
      await nothingComes(consumer, 500)
      consumer.resume()
      seen.push(...(await takeTexts(consumer, 5000 - 150)))
      assert.deepEqual(seen, numbered("r", 0, 5000))
      await nothingComes(consumer)
      await consumer.shutdown()
    })

    test("A-09: pause, seek and resume cost no wait of their own", async () => {
      const topic = await manyFilled(rig)
      const consumer = topic.consumer("reader", 0, {
        batchLength: 100,
        prefetchRecords: 2000,
        pollingRetryIntervalMs: 60_000,
      })
      const [first] = await take(consumer, 150)
      consumer.pause([0])
      const value = (first as Message).position.offset + 4900n
      await settlesWithin("a seek of a paused partition", consumer.seek(0, { kind: "offset", value }))
      await nothingComes(consumer)
      consumer.resume([0])
      assert.deepEqual(await takeTexts(consumer, 100), numbered("r", 4900, 5000))
      await consumer.shutdown()
    })

    test("a paused partition hands out nothing, and the others go on", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const topic = await rig.topic(2)
      await fill(topic, numbered("a", 0, 5), 0)
      await fill(topic, numbered("b", 0, 5), 1)
      const consumer = await topic.consumerGroup("readers").consumer({ startAt: { kind: "first" } })
      const [first] = await take(consumer, 1)
      const paused = (first as Message).position.partition
      consumer.pause([paused])
      await fill(topic, numbered(paused === 0 ? "b" : "a", 5, 10), 1 - paused)
      assert.deepEqual(await takeTexts(consumer, 10), numbered(paused === 0 ? "b" : "a", 0, 10))
      await nothingComes(consumer, 200)
      consumer.resume([paused])
      assert.deepEqual(await takeTexts(consumer, 4), numbered(paused === 0 ? "a" : "b", 1, 5))
      await consumer.shutdown()
    })

    test("a topic that is purged while it is read is read on with what comes then, and the change is told", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 5))
      const consumer = topic.consumer("reader", 0)
      const changes: SourceChange[] = []
      consumer.on({ sourceChanged: (change) => void changes.push(change) })
      await take(consumer, 5)
      await nothingComes(consumer)
      await topic.purge()
      await fill(topic, ["new0", "new1"])
      assert.deepEqual(await takeTexts(consumer, 2), ["new0", "new1"])
      assert.equal(changes.length, rig.client.manifest.catalog.purge === "restarts" ? 1 : 0)
      await consumer.shutdown()
    })

    test("with onMissing wait a topic that was deleted is read again once it is there, from its start", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 3))
      const consumer = topic.consumer("reader", 0, { onMissing: "wait", pollingRetryIntervalMs: 100 })
      await take(consumer, 3)
      await topic.delete()
      await nothingComes(consumer, 1000)
      await topic.ensure(1)
      await fill(topic, ["new0"])
      assert.deepEqual(await takeTexts(consumer, 1), ["new0"])
      await consumer.shutdown()
    })

    test("minRecords holds a poll open for as long as maxWaitMs, and no longer", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0, { minRecords: 3, maxWaitMs: 1500 })
      await nothingComes(consumer)
      await fill(topic, ["r0"])
      await nothingComes(consumer, 100)
      assert.deepEqual(await takeTexts(consumer, 1), ["r0"], "the wait is over")
      await fill(topic, ["r1", "r2", "r3"])
      assert.deepEqual(await takeTexts(consumer, 3), ["r1", "r2", "r3"])
      await consumer.shutdown()
    })
  })
}

async function manyFilled(rig: ClientRig): Promise<Topic> {
  const topic = await rig.topic()
  for (let from = 0; from < 5000; from += 250) await fill(topic, numbered("r", from, from + 250))
  return topic
}
