/** Chapter: named consumers: where they begin, what they commit and when, how they wait and end. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { CommitPolicy, Consumer, Topic } from "millrace"
import { type ClientRig, encode, fill, fillOneByOne, nothingComes, take, takeTexts } from "../rig/client-rig.ts"
import { isPending, settlesWithin } from "../rig/deadline.ts"
import { storedBecomes, storedBy } from "../rig/progress.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function consumingChapter(rig: ClientRig): void {
  describe("where a consumer begins", () => {
    test("next: the first retained record while nothing is stored, then behind what is stored", async () => {
      const topic = await filled(rig, 5)
      const first = topic.consumer("reader", 0)
      assert.deepEqual(await takeTexts(first, 3), numbered("r", 0, 3))
      await first.shutdown()
      const second = topic.consumer("reader", 0)
      assert.deepEqual(await takeTexts(second, 2), numbered("r", 3, 5))
      await second.shutdown()
    })

    test("a stored offset of 0 means that record 0 is done", async () => {
      const topic = await filled(rig, 3)
      const first = topic.consumer("reader", 0, { commitPolicy: { kind: "disabled" } })
      await first.storeOffset(0n)
      await first.shutdown()
      const second = topic.consumer("reader", 0)
      assert.deepEqual(await takeTexts(second, 2), ["r1", "r2"])
      await second.shutdown()
    })

    test("first, last and offset begin there while nothing is stored", async () => {
      const topic = await filled(rig, 5)
      const starts = [
        [{ kind: "first" }, "r0"],
        [{ kind: "last" }, "r4"],
        [{ kind: "offset", value: 2n }, "r2"],
      ] as const
      for (const [startAt, expected] of starts) {
        const consumer = topic.consumer(rig.name("reader"), 0, { startAt })
        assert.deepEqual(await takeTexts(consumer, 1), [expected])
        await consumer.shutdown()
      }
    })

    test("what is stored wins over the start, unless replay is allowed", async () => {
      const topic = await filled(rig, 5)
      const first = topic.consumer("reader", 0)
      await first.storeOffset(2n)
      await first.shutdown()
      const plain = topic.consumer("reader", 0, { startAt: { kind: "first" }, commitPolicy: { kind: "disabled" } })
      assert.deepEqual(await takeTexts(plain, 1), ["r3"])
      await plain.shutdown()
      const replay = topic.consumer("reader", 0, { startAt: { kind: "first" }, allowReplay: true })
      assert.deepEqual(await takeTexts(replay, 5), numbered("r", 0, 5))
      await replay.shutdown()
    })

    test("an offset at the end waits for the next record", async () => {
      const topic = await filled(rig, 2)
      const consumer = topic.consumer("reader", 0, { startAt: { kind: "offset", value: 2n } })
      await nothingComes(consumer)
      await fill(topic, ["r2"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r2"])
      await consumer.shutdown()
    })
  })

  describe("what a consumer commits", () => {
    test("each: every handled message, before the next is handed out", async () => {
      const { topic, consumer } = await open(rig, { kind: "each" }, 5)
      await take(consumer, 3)
      assert.equal(await storedBy(topic, "reader"), 1n, "two are handled, the third is in hand")
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 2n)
    })

    test("polling: nothing in the midst of a page, the page when the next is asked for", async () => {
      const { topic, consumer } = await open(rig, { kind: "polling" }, 10, 4)
      await take(consumer, 4)
      assert.equal(await storedBy(topic, "reader"), undefined, "the page is not done")
      await take(consumer, 1)
      await storedBecomes(topic, "reader", 3n)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 4n)
    })

    test("all: once every message of a page is handled", async () => {
      const { topic, consumer } = await open(rig, { kind: "all" }, 6, 3)
      await take(consumer, 3)
      assert.equal(await storedBy(topic, "reader"), undefined)
      await take(consumer, 1)
      await storedBecomes(topic, "reader", 2n)
      await consumer.shutdown()
    })

    test("disabled: nothing but what commit says, also on shutdown", async () => {
      const { topic, consumer } = await open(rig, { kind: "disabled" }, 5)
      const messages = await take(consumer, 4)
      assert.equal(await storedBy(topic, "reader"), undefined)
      await consumer.commit(messages[1])
      assert.equal(await storedBy(topic, "reader"), 1n)
      await take(consumer, 1)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 1n)
    })

    test("a checkpoint commits as its message does; without an argument all that was handed out", async () => {
      const { topic, consumer } = await open(rig, { kind: "disabled" }, 5)
      const [first] = await take(consumer, 1)
      assert.ok(first !== undefined)
      await consumer.commit(first.checkpoint())
      assert.equal(await storedBy(topic, "reader"), 0n)
      await take(consumer, 2)
      await consumer.commit()
      assert.equal(await storedBy(topic, "reader"), 2n)
      await consumer.shutdown()
    })

    test("offsets are told and stored in terms of the last handled record", async () => {
      const topic = await filled(rig, 4)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "disabled" } })
      assert.equal(await consumer.storedOffset(), undefined)
      assert.equal(consumer.lastConsumedOffset(), undefined)
      assert.equal(consumer.lastStoredOffset(), undefined)
      const messages = await take(consumer, 2)
      assert.equal(consumer.lastConsumedOffset(), 1n)
      await consumer.commit(messages[1])
      assert.equal(consumer.lastStoredOffset(), 1n)
      const stored = await consumer.storedOffset()
      assert.equal(stored?.stored, 1n)
      assert.equal(stored?.current, 3n)
      await consumer.deleteOffset()
      assert.equal(await consumer.storedOffset(), undefined)
      await consumer.shutdown()
    })

    test("lag counts what is not handled, and reaches 0", async () => {
      const { consumer } = await open(rig, { kind: "each" }, 3)
      assert.deepEqual(await lags(consumer), [3n])
      const messages = await take(consumer, 3)
      await consumer.commit(messages[2])
      assert.deepEqual(await lags(consumer), [0n])
      await consumer.shutdown()
    })

    test("an unnamed consumer stores nothing, and says so when asked", async () => {
      const topic = await filled(rig, 3)
      const consumer = topic.consumer(undefined, 0)
      assert.deepEqual(await takeTexts(consumer, 3), numbered("r", 0, 3))
      await refused(() => consumer.storedOffset(), "invalid")
      await consumer.shutdown()
      const again = topic.consumer(undefined, 0)
      assert.deepEqual(await takeTexts(again, 1), ["r0"])
      await again.shutdown()
    })

    test("readers of other names and of other partitions do not meet", async () => {
      const topic = await rig.topic(2)
      await fill(topic, ["a0", "a1"], 0)
      await fill(topic, ["b0", "b1"], 1)
      const one = topic.consumer("one", 0, { commitPolicy: { kind: "each" } })
      await take(one, 2)
      await one.shutdown()
      const other = topic.consumer("other", 0)
      assert.deepEqual(await takeTexts(other, 1), ["a0"])
      const neighbour = topic.consumer("one", 1)
      assert.deepEqual(await takeTexts(neighbour, 1), ["b0"])
      await Promise.all([other.shutdown(), neighbour.shutdown()])
    })
  })

  describe("how a consumer waits and ends", () => {
    test("nextWithin fails at its deadline, keeps its poll, and loses nothing", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      const error = await refused(() => consumer.nextWithin(40), { kind: "timeout", says: ["40"] })
      assert.equal(error.retryable, true)
      await fill(topic, ["late"])
      assert.deepEqual(await takeTexts(consumer, 1), ["late"])
      assert.equal(await storedBy(topic, "reader"), undefined, "a message that came late is not handled by coming")
      await consumer.shutdown()
    })

    test("next waits, and calls at once are served in order", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0)
      const calls = [consumer.next(), consumer.next(), consumer.next()]
      assert.ok(await isPending(calls[0] as Promise<unknown>))
      await fill(topic, ["a", "b", "c"])
      const results = await settlesWithin("three calls of next", Promise.all(calls))
      assert.deepEqual(
        results.map((result) => (result.done === true ? "done" : text(result.value.payload))),
        ["a", "b", "c"],
      )
      await consumer.shutdown()
    })

    test("iteration goes on where it was left", async () => {
      const topic = await filled(rig, 6)
      const consumer = topic.consumer("reader", 0)
      const seen: string[] = []
      for await (const message of consumer) {
        seen.push(text(message.payload))
        if (seen.length === 3) break
      }
      seen.push(...(await takeTexts(consumer, 3)))
      assert.deepEqual(seen, numbered("r", 0, 6))
      await consumer.shutdown()
    })

    test("an aborted stream ends with CancelledError, and the consumer can go on", async () => {
      const topic = await filled(rig, 1)
      const consumer = topic.consumer("reader", 0)
      const abort = new AbortController()
      const seen: string[] = []
      await refused(async () => {
        for await (const message of consumer.stream({ signal: abort.signal })) {
          seen.push(text(message.payload))
          setImmediate(() => abort.abort())
        }
      }, "cancelled")
      assert.deepEqual(seen, ["r0"])
      await fill(topic, ["r1"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r1"])
      await consumer.shutdown()
    })

    test("shutdown ends what waits, is harmless when repeated, and later calls are refused as closed", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0)
      const waiting = consumer.next()
      await isPending(waiting)
      await settlesWithin("shutdown", Promise.all([consumer.shutdown(), consumer.shutdown()]))
      const result = await settlesWithin("next at shutdown", Promise.allSettled([waiting]))
      if (result[0]?.status === "fulfilled") assert.equal(result[0].value.done, true)
      else await refused(() => waiting, "closed")
      const error = await refused(() => consumer.nextWithin(10), "closed")
      assert.equal(error.name.length > 0, true)
      await refused(() => consumer.storeOffset(0n), "closed")
      await consumer.shutdown()
    })

    test("await using shuts the consumer down and stores by its policy; the message in hand may have failed, and comes again", async () => {
      const topic = await filled(rig, 2)
      {
        await using consumer = topic.consumer("reader", 0)
        await take(consumer, 2)
      }
      assert.equal(await storedBy(topic, "reader"), 0n)
      const again = topic.consumer("reader", 0)
      assert.deepEqual(await takeTexts(again, 1), ["r1"])
      await again.shutdown()
      assert.equal(await storedBy(topic, "reader"), 1n, "a shutdown by hand says that the last message is handled")
    })

    test("a message is told in full", async () => {
      const topic = await rig.topic()
      await topic.publish().payload(encode("p")).key("k").header("h", "v").send()
      const consumer = topic.consumer("reader", 0)
      const [message] = await take(consumer, 1)
      assert.ok(message !== undefined)
      assert.equal(text(message.payload), "p")
      assert.equal(text(message.key), "k")
      assert.equal(message.headers.get("h")?.value, "v")
      assert.equal(message.headersError, undefined)
      assert.deepEqual(message.position, { partition: 0, offset: 0n })
      assert.equal(typeof message.timestampMicros, "bigint")
      if (rig.client.manifest.read.ids === "all") assert.equal(typeof message.id, "bigint")
      const copy = message.copy()
      assert.notEqual(copy.payload?.buffer, message.payload?.buffer)
      assert.deepEqual(copy.payload, message.payload)
      assert.doesNotThrow(() => JSON.stringify(message))
      await consumer.shutdown()
    })

    test("a topic that does not exist fails, or is waited for where the consumer asks for it", async () => {
      const topic = rig.handle()
      const failing = topic.consumer("reader", 0)
      await refused(() => failing.nextWithin(5_000), { kind: "not-found", says: [topic.stream] })
      await failing.shutdown()
      const waiting = topic.consumer("reader", 0, { onMissing: "wait", pollingRetryIntervalMs: 20 })
      const next = waiting.next()
      assert.ok(await isPending(next))
      await topic.ensure(1)
      await fill(topic, ["at last"])
      const result = await settlesWithin("next of a topic that was made", next)
      assert.equal(result.done === true ? "done" : text(result.value.payload), "at last")
      await waiting.shutdown()
    })
  })
}

async function filled(rig: ClientRig, count: number): Promise<Topic> {
  const topic = await rig.topic()
  await fillOneByOne(topic, numbered("r", 0, count))
  return topic
}

async function open(
  rig: ClientRig,
  commitPolicy: CommitPolicy,
  count: number,
  batchLength = 1_000,
): Promise<{ topic: Topic; consumer: Consumer }> {
  const topic = await filled(rig, count)
  return { topic, consumer: topic.consumer("reader", 0, { commitPolicy, batchLength }) }
}

async function lags(consumer: Consumer): Promise<bigint[]> {
  return (await consumer.lag()).map((entry) => entry.lag)
}
