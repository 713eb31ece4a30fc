/** Chapter: work queues with handlers: `process`, `processWithin`, `processBatch`, and the dedupe window. */
import assert from "node:assert/strict"
import { describe } from "node:test"
import { type IntervalSet, type QueueMessage, TimeoutError } from "millrace"
import { type ClientRig, fill, fillOneByOne } from "../rig/client-rig.ts"
import { isPending, settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { deliveriesOf, filledQueue, nothingPulled, pulledOne, queueTest, shown, untilDone } from "../rig/work-queues.ts"

export function queueHandlingChapter(rig: ClientRig): void {
  describe("queues: process", { concurrency: true }, () => {
    queueTest(
      rig,
      "waits for a message, handles it, acknowledges it and answers what the handler returned",
      async () => {
        const { topic, queue } = await filledQueue(rig, [])
        await using consumer = await queue.consumer({ confirmAcks: true })
        const answer = consumer.process(async (message, context) => `${text(message.payload)} ${context.attempt}`)
        assert.ok(await isPending(answer))
        await fillOneByOne(topic, ["a", "b"])
        assert.equal(await settlesWithin("the handling", answer), "a 1")
        assert.deepEqual((await queue.info()).partitions[0]?.floor, 1n)
        assert.equal(await consumer.process(shown), "b#1")
        await nothingPulled(consumer)
      },
    )

    queueTest(
      rig,
      "rejects with the handler's own error, neither acks nor marks, and gives the message back",
      async () => {
        const { queue } = await filledQueue(rig, ["a"])
        await using consumer = await queue.consumer()
        const broken = new Error("broken")
        const failing = [
          () => Promise.reject(broken),
          (): never => {
            throw broken
          },
        ]
        for (const handler of failing) {
          await assert.rejects(settlesWithin("the handling", consumer.process(handler)), (error) => error === broken)
          assert.equal(consumer.dedupeWindow.alreadyProcessed(0, 0n), false)
        }
        assert.equal(consumer.statistics.failed, 2)
        assert.equal(await settlesWithin("the third delivery", consumer.process(shown)), "a#3")
        assert.equal(consumer.dedupeWindow.alreadyProcessed(0, 0n), true)
        await untilDone(queue)
      },
    )

    queueTest(rig, "with nakOnError false what failed comes when its wait is over", async () => {
      const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 300 })
      await using consumer = await queue.consumer({ nakOnError: false })
      const began = performance.now()
      await assert.rejects(
        consumer.process(() => Promise.reject(new Error("broken"))),
        /broken/,
      )
      // One that is too old when it arrives, on a slow machine, is handed to nobody, and counts.
      const again = await settlesWithin(
        "the next delivery",
        consumer.process(({ deliveries }) => deliveries),
      )
      assert.ok(again >= 2)
      assert.ok(performance.now() - began >= 290, "it came before its wait was over")
    })

    queueTest(rig, "a handler that settles its message by itself has decided", async () => {
      const { queue } = await filledQueue(rig, ["nak", "terminate", "ack"])
      await using consumer = await queue.consumer({ prefetch: 0 })
      const settle = async (): Promise<string> =>
        await consumer.process(async (message) => {
          const what = text(message.payload) as "nak" | "terminate" | "ack"
          if (message.deliveries === 1) assert.equal(await message[what](), true)
          return what
        })
      assert.deepEqual(await settlesWithin("the handling", Promise.all([settle(), settle(), settle(), settle()])), [
        "nak",
        "terminate",
        "ack",
        "nak",
      ])
      assert.deepEqual(marked(consumer.dedupeWindow), ["0", "2"])
      await untilDone(queue)
    })

    queueTest(rig, "processWithin is for a message that comes in time; its handler may take longer", async () => {
      const { topic, queue } = await filledQueue(rig, [])
      await using consumer = await queue.consumer()
      for (const timeoutMs of [0, 60]) {
        const began = performance.now()
        await assert.rejects(settlesWithin("the wait", consumer.processWithin(timeoutMs, shown)), (error) => {
          return error instanceof TimeoutError && error.outcome === "rejected"
        })
        assert.ok(performance.now() - began >= timeoutMs - 5, "it gave up too early")
      }
      await fillOneByOne(topic, ["a", "b"])
      const slow = consumer.processWithin(0, async (message) => {
        await new Promise((resolve) => setTimeout(resolve, 80))
        return text(message.payload)
      })
      assert.equal(await slow, "a")
      assert.equal(await consumer.processWithin(10_000, shown), "b#1")
    })

    queueTest(
      rig,
      "what the dedupe window has is acknowledged and skipped; the window is this consumer's",
      async () => {
        const { queue } = await filledQueue(rig, numbered("m", 0, 6))
        const consumer = await queue.consumer({ prefetch: 0 })
        const { dedupeWindow } = consumer
        assert.deepEqual([dedupeWindow.min(0), dedupeWindow.max(0), dedupeWindow.gaps(0)], [undefined, undefined, []])
        for (const offset of [0n, 1n, 4n]) assert.equal(dedupeWindow.markProcessed(0, offset), true)
        assert.equal(dedupeWindow.markProcessed(0, 4n), false)
        assert.deepEqual([dedupeWindow.min(0), dedupeWindow.max(0)], [0n, 4n])
        assert.deepEqual(dedupeWindow.gaps(0), [{ from: 2n, to: 4n }])
        assert.equal(await settlesWithin("the first that is new", consumer.process(shown)), "m2#1")
        assert.equal(consumer.statistics.skipped, 2)
        const results = await settlesWithin("the batch", consumer.processBatch(2, shown))
        assert.deepEqual(valuesOf(results), ["m3#1", "m5#1"])
        assert.deepEqual(marked(dedupeWindow), ["0", "1", "2", "3", "4", "5"])
        await untilDone(queue)
        await consumer.shutdown()
        await using other = await queue.consumer()
        assert.equal(other.dedupeWindow.alreadyProcessed(0, 0n), false)
      },
    )

    queueTest(rig, "what was handled and acknowledged too late is told, and not handled a second time", async () => {
      const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 250 })
      await using consumer = await queue.consumer({ autoExtend: false })
      await using other = await queue.consumer()
      const late: bigint[] = []
      consumer.on({ late: ({ offset }) => late.push(offset) })
      let handled = 0
      await consumer.process(async () => {
        handled++
        // The next delivery is on its way elsewhere before this handler is done.
        await (await pulledOne(other)).nak({ delayMs: 1 })
      })
      const next = consumer.process(() => void handled++)
      await until("the message that comes again to be skipped", () => consumer.statistics.skipped > 0 || undefined)
      assert.deepEqual([late[0], handled], [0n, 1])
      await untilDone(queue)
      const refusal = refused(() => next, "closed")
      await consumer.shutdown()
      await settlesWithin("the call that waits", refusal)
    })

    queueTest(rig, "a handler that takes many waits keeps its message, and others do not get it", async () => {
      const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 900 })
      await using consumer = await queue.consumer()
      await using other = await queue.consumer()
      const elsewhere = await consumer.process(async (message) => {
        const taken = other.pull({ maxWaitMs: 2_100 })
        assert.equal(message.deliveries, 1)
        return deliveriesOf(await taken)
      })
      assert.deepEqual(elsewhere, [])
      assert.ok(consumer.statistics.extended >= 2)
      assert.equal(consumer.statistics.late, 0)
      await untilDone(queue)
    })

    queueTest(rig, "a handler that hangs loses its message after maxExtendMs, and is told by its signal", async () => {
      const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 200 })
      await using consumer = await queue.consumer({ maxExtendMs: 300 })
      await using other = await queue.consumer()
      const again = await consumer.process(async (message, { signal }) => {
        const taken = pulledOne(other)
        const told = new Promise((resolve) => signal.addEventListener("abort", resolve))
        await settlesWithin("the signal", told)
        return (await taken).deliveries - message.deliveries
      })
      assert.ok(again > 0)
      assert.equal(consumer.statistics.late, 1)
    })
  })

  describe("queues: processBatch", { concurrency: true }, () => {
    queueTest(rig, "handles as many as are there, one after the other, and acknowledges them", async () => {
      const { queue } = await filledQueue(rig, numbered("m", 0, 7))
      await using consumer = await queue.consumer({ batchTimeoutMs: 100 })
      let running = 0
      const results = await consumer.processBatch(5, async (message) => {
        assert.equal(++running, 1)
        await new Promise((resolve) => setImmediate(resolve))
        running--
        return text(message.payload)
      })
      assert.deepEqual(valuesOf(results), numbered("m", 0, 5))
      assert.equal((await queue.info()).partitions[0]?.floor, 5n)
      const began = performance.now()
      assert.deepEqual(valuesOf(await consumer.processBatch(5, shown)), ["m5#1", "m6#1"])
      assert.ok(performance.now() - began >= 95, "it did not wait for more")
      await untilDone(queue)
    })

    queueTest(rig, "waits for a first message, and its time counts from there", async () => {
      const { topic, queue } = await filledQueue(rig, [])
      await using consumer = await queue.consumer({ batchTimeoutMs: 5_000 })
      const batch = consumer.processBatch(2, shown)
      assert.ok(await isPending(batch))
      await fillOneByOne(topic, ["a", "b"])
      assert.deepEqual(valuesOf(await settlesWithin("the batch", batch)), ["a#1", "b#1"])
    })

    queueTest(
      rig,
      "ends at the first that fails: its error last, what was before it done, what is behind it untouched",
      async () => {
        const { queue } = await filledQueue(rig, numbered("m", 0, 5))
        await using consumer = await queue.consumer()
        const results = await consumer.processBatch(5, (message) => {
          if (text(message.payload) === "m2") throw new Error("broken")
          return text(message.payload)
        })
        assert.deepEqual(outcomesOf(results), ["m0", "m1", "Error: broken"])
        assert.deepEqual(marked(consumer.dedupeWindow), ["0", "1"])
        assert.equal((await queue.info()).partitions[0]?.floor, 2n)
        const seen: string[] = []
        while (seen.length < 3) seen.push(...valuesOf(await settlesWithin("the rest", consumer.processBatch(5, shown))))
        assert.deepEqual(seen.map((one) => one.slice(0, 2)).sort(), ["m2", "m3", "m4"])
        assert.ok(seen.includes("m2#2"))
        await untilDone(queue)
      },
    )

    queueTest(
      rig,
      "under all one ack covers each partition, and behind a failure everything comes again in order",
      async () => {
        const topic = await rig.topic(2)
        const queue = topic.queue("work", { ackPolicy: "all" })
        await fill(topic, numbered("a", 0, 6), 0)
        await fill(topic, numbered("b", 0, 6), 1)
        await using consumer = await queue.consumer()
        const seen: string[] = []
        let failures = 0
        const handle = (message: QueueMessage): void => {
          const name = text(message.payload)
          if (name === "a3" && failures++ < 2) throw new Error("broken")
          seen.push(name)
        }
        while (seen.length < 12) await settlesWithin("a batch", consumer.processBatch(8, handle))
        assert.equal(failures, 3)
        for (const prefix of ["a", "b"]) {
          assert.deepEqual(
            seen.filter((name) => name.startsWith(prefix)),
            numbered(prefix, 0, 6),
          )
        }
        await untilDone(queue)
      },
    )

    queueTest(rig, "under none what was handed out is settled, also what fails", async () => {
      const { queue } = await filledQueue(rig, ["a", "b", "c"], { ackPolicy: "none" })
      await using consumer = await queue.consumer()
      const results = await consumer.processBatch(2, (message) => {
        if (text(message.payload) === "b") throw new Error("broken")
        return text(message.payload)
      })
      assert.deepEqual(outcomesOf(results), ["a", "Error: broken"])
      const { ackPending, delayed } = await queue.info()
      assert.equal(ackPending + delayed, 0)
    })
  })
}

function valuesOf<T>(results: readonly PromiseSettledResult<T>[]): T[] {
  return results.map((result) => {
    if (result.status === "rejected") throw result.reason
    return result.value
  })
}

/** The values, or the error as a text. */
function outcomesOf(results: readonly PromiseSettledResult<unknown>[]): string[] {
  return results.map((result) => String(result.status === "fulfilled" ? result.value : result.reason))
}

/** The offsets of partition 0 that are marked. */
function marked(window: IntervalSet): string[] {
  const [min, max] = [window.min(0), window.max(0)]
  const offsets: string[] = []
  if (min === undefined || max === undefined) return offsets
  for (let offset = min; offset <= max; offset++) if (window.alreadyProcessed(0, offset)) offsets.push(`${offset}`)
  return offsets
}
