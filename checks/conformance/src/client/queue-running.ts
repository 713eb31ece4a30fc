/** Chapter: `run` on a work queue: side by side, behind failures, until it is told to stop. */
import assert from "node:assert/strict"
import { describe } from "node:test"
import { CancelledError, MillraceError, type QueueRunOptions } from "millrace"
import { type ClientRig, fill, fillOneByOne } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { deliveriesOf, filledQueue, pulled, pulledOne, queueTest, shown, untilDone } from "../rig/work-queues.ts"

export function queueRunningChapter(rig: ClientRig): void {
  describe("queues: run", { concurrency: true }, () => {
    queueTest(rig, "handles side by side, each message once, until it is told to stop", async () => {
      const topic = await rig.topic(2)
      const queue = topic.queue("work")
      await fill(topic, numbered("a", 0, 100), 0)
      await fill(topic, numbered("b", 0, 100), 1)
      await using consumer = await queue.consumer()
      const seen: string[] = []
      const most = { running: 0, ever: 0 }
      const run = consumer.run(
        async (message, context) => {
          most.ever = Math.max(most.ever, ++most.running)
          await new Promise((resolve) => setTimeout(resolve, 1))
          most.running--
          seen.push(text(message.payload))
          if (seen.length === 200) context.stop()
        },
        { concurrency: 16 },
      )
      await settlesWithin("the run", run)
      assert.deepEqual(seen.sort(), [...numbered("a", 0, 100), ...numbered("b", 0, 100)].sort())
      assert.ok(most.ever > 1 && most.ever <= 16, `${most.ever} handlers ran at the same time`)
      await untilDone(queue)
    })

    queueTest(
      rig,
      "goes on behind failures, tells of each and what comes next, and comes back to it later",
      async () => {
        const { queue } = await filledQueue(rig, ["a", "bad", "b"])
        await using consumer = await queue.consumer()
        const [seen, told]: [string[], string[]] = [[], []]
        const options: QueueRunOptions = {
          backoffMs: 60,
          onError: (error, next) => told.push(`${error.kind} ${error.context.offset} ${next}`),
        }
        let failedMs = 0
        const run = consumer.run((message, context) => {
          if (text(message.payload) === "bad" && message.deliveries < 3) {
            if (failedMs > 0) assert.ok(performance.now() - failedMs >= 25, "half of the delay is certain")
            failedMs = performance.now()
            throw new Error("broken")
          }
          if (seen.push(shown(message)) === 3) context.stop()
        }, options)
        await settlesWithin("the run", run)
        assert.deepEqual(seen, ["a#1", "b#1", "bad#3"])
        assert.deepEqual(told, ["handler 1 retry", "handler 1 retry"])
        await untilDone(queue)
      },
    )

    queueTest(rig, "ends with what onError throws, with its signal, and leaves the consumer as it is", async () => {
      const { queue } = await filledQueue(rig, ["a", "b"])
      await using consumer = await queue.consumer({ prefetch: 0 })
      const enough = new Error("enough")
      const failing = consumer.run(() => Promise.reject(new Error("broken")), {
        onError: () => {
          throw enough
        },
      })
      await assert.rejects(settlesWithin("the run", failing), (error) => error === enough)
      const stop = new AbortController()
      let finished = false
      const stopped = consumer.run(
        async () => {
          stop.abort()
          await new Promise((resolve) => setTimeout(resolve, 20))
          finished = true
        },
        { signal: stop.signal },
      )
      await assert.rejects(settlesWithin("the run", stopped), CancelledError)
      assert.ok(finished, "a running handler finishes")
      assert.equal(typeof (await settlesWithin("the other message", consumer.process(shown))), "string")
      await untilDone(queue)
    })

    queueTest(rig, "under all handles one after the other, in order, also behind a failure", async () => {
      const { queue } = await filledQueue(rig, numbered("m", 0, 6), { ackPolicy: "all" })
      await using consumer = await queue.consumer()
      await refused(() => consumer.run(() => {}, { concurrency: 2 }), { kind: "invalid", says: ["concurrency", "all"] })
      const seen: string[] = []
      const run = consumer.run((message, context) => {
        if (text(message.payload) === "m2" && message.deliveries === 1) throw new Error("broken")
        if (seen.push(text(message.payload)) === 6) context.stop()
      })
      await settlesWithin("the run", run)
      assert.deepEqual(seen, numbered("m", 0, 6))
      await untilDone(queue)
    })

    queueTest(rig, "hangs on nothing: two at a time share the messages, and the consumer's end ends both", async () => {
      const { topic, queue } = await filledQueue(rig, [])
      const consumer = await queue.consumer()
      const seen: string[] = []
      const runs = [1, 2].map(() => consumer.run((message) => seen.push(text(message.payload))))
      await fillOneByOne(topic, numbered("m", 0, 10))
      await untilDone(queue)
      await consumer.shutdown()
      await settlesWithin("the runs", Promise.all(runs))
      assert.deepEqual(seen.sort(), numbered("m", 0, 10))
    })

    queueTest(rig, "a listener that throws fails the next call, and hinders nobody else", async () => {
      const { queue } = await filledQueue(rig, ["a", "b"])
      await using consumer = await queue.consumer({ prefetch: 0 })
      const told: string[] = []
      consumer.on({
        exhausted: () => {
          throw new Error("deaf")
        },
      })
      using _ = consumer.on({ exhausted: ({ reason }) => told.push(reason) })
      assert.equal(await (await pulledOne(consumer)).terminate("bad"), true)
      assert.deepEqual(told, ["bad"])
      await assert.rejects(consumer.process(shown), (error) => {
        return error instanceof MillraceError && error.kind === "handler" && error.message.includes("exhausted")
      })
      assert.deepEqual(deliveriesOf(await pulled(consumer, 1)), ["b#1"])
    })
  })
}
