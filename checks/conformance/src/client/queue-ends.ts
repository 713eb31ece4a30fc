/** Chapter: the end of a work queue and of those who take from it: deletions, shutdowns and closes in the middle of everything. */
import assert from "node:assert/strict"
import { describe } from "node:test"
import { ClosedError, type Queue, type QueueConsumer, type QueueMessage, TimeoutError } from "millrace"
import { type ClientRig, fill, fillOneByOne } from "../rig/client-rig.ts"
import { isPending, settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import {
  deliveriesOf,
  filledQueue,
  mortal,
  neighbour,
  pulled,
  pulledOne,
  queueTest,
  untilInfo,
} from "../rig/work-queues.ts"

export function queueEndsChapter(rig: ClientRig): void {
  describe("queues: deletion", { concurrency: true }, () => {
    for (const what of ["the queue", "the topic"] as const) {
      queueTest(rig, `when ${what} is deleted everybody who waits, asks or settles hears of it`, async () => {
        const { topic, queue } = await filledQueue(rig, ["a", "b"])
        const consumer = await queue.consumer({ prefetch: 0 })
        const held = await pulled(consumer, 2)
        const waiting = [consumer.pull(), consumer.process(() => {}), consumer.run(() => {}), iterated(consumer)]
        for (const each of waiting) assert.ok(await isPending(each))
        const gone = Promise.all(waiting.map((each) => refused(() => each, "not-found")))
        if (what === "the queue") await queue.delete()
        else await topic.delete()
        await settlesWithin("the calls that waited", gone)
        await refused(() => settlesWithin("an ack", held[0]?.ack() as Promise<boolean>), "not-found")
        await refused(() => settlesWithin("a nak", held[1]?.nak() as Promise<boolean>), "not-found")
        await refused(() => settlesWithin("a later call", consumer.pull()), "not-found")
        await settlesWithin("the shutdown", consumer.shutdown())
        await refused(() => queue.info(), "not-found")
        if (what === "the topic") return
        await startsAnew(queue)
      })
    }
  })

  describe("queues: shutdown", { concurrency: true }, () => {
    for (const end of ["shutdown", "close"] as const) {
      queueTest(
        rig,
        `${end}: what lies in the buffer goes back at once, what is in hands when its wait is over`,
        async (t) => {
          const { isolated } = rig.under
          if (end === "close" && isolated !== undefined) return t.skip(isolated)
          const client = end === "close" ? await mortal(rig) : rig.client
          const topic = await rig.topic(1, {}, client)
          const queue = topic.queue("work", { ackWaitMs: 1_200 })
          const consumer = await queue.consumer()
          await fill(topic, numbered("quick", 0, 30))
          for (let i = 0; i < 30; i++) await consumer.process(() => {})
          await fill(topic, numbered("m", 0, 6))
          const began = performance.now()
          const held = await pulledOne(consumer)
          await until("messages in the buffer", () => consumer.statistics.buffered > 0 || undefined)
          if (end === "shutdown") await settlesWithin("the shutdown", consumer.shutdown())
          else await settlesWithin("the close", client.close())
          await refused(() => settlesWithin("an ack", held.ack()), "closed")
          await refused(() => settlesWithin("an inProgress", held.inProgress()), "closed")
          const through = end === "shutdown" ? topic : rig.through(await neighbour(rig), topic)
          await using next = await through.queue("work").consumer({ prefetch: 0 })
          const seen: string[] = []
          while (!seen.includes("m0")) {
            const message = await pulledOne(next)
            seen.push(text(message.payload))
            assert.equal(await message.ack(), true)
          }
          assert.ok(performance.now() - began >= 1_190, "what was in hands came before its wait was over")
          assert.deepEqual(seen, ["m1", "m2", "m3", "m4", "m5", "m0"])
        },
      )

      queueTest(rig, `${end} waits for running handlers and sends their acks; nothing more starts`, async () => {
        const client = end === "close" ? await mortal(rig) : rig.client
        const topic = await rig.topic(1, {}, client)
        await fillOneByOne(topic, numbered("m", 0, 5))
        const consumer = await topic.queue("work", { ackWaitMs: 60_000 }).consumer()
        const work = Promise.withResolvers<void>()
        const seen: string[] = []
        const run = consumer.run(
          async (message) => {
            seen.push(text(message.payload))
            await work.promise
          },
          { concurrency: 2 },
        )
        await until("two handlers", () => seen.length === 2 || undefined)
        const over = end === "shutdown" ? consumer.shutdown() : client.close()
        assert.ok(await isPending(over))
        work.resolve()
        await settlesWithin(`the ${end}`, over)
        await settlesWithin("the run", run)
        assert.deepEqual(seen, ["m0", "m1"])
        if (rig.under.isolated !== undefined && end === "close") return
        const through = end === "shutdown" ? topic : rig.through(await neighbour(rig), topic)
        const queue = through.queue("work")
        const { ackPending, delayed, partitions } = await queue.info()
        assert.deepEqual([ackPending - delayed <= 0, partitions[0]?.floor], [true, 2n])
        await using next = await queue.consumer()
        const rest = await pulled(next, 3)
        assert.deepEqual(
          rest.map((message) => text(message.payload)),
          ["m2", "m3", "m4"],
        )
      })
    }

    for (const verb of ["process", "processBatch", "run"] as const) {
      queueTest(
        rig,
        `a handler of ${verb} that awaits the shutdown does not hang, and its message is done`,
        async () => {
          const { queue } = await filledQueue(rig, ["a", "b"])
          const consumer = await queue.consumer()
          const seen: string[] = []
          const handled = handleWith(consumer, verb, async (message) => {
            seen.push(text(message.payload))
            await consumer.shutdown()
          })
          await settlesWithin("the handling", handled)
          await settlesWithin("the shutdown", consumer.shutdown())
          assert.deepEqual(seen, ["a"])
          await untilInfo(queue, "the first message done", ({ partitions }) => partitions[0]?.floor === 1n)
        },
      )
    }

    for (const verb of ["process", "run"] as const) {
      queueTest(
        rig,
        `a handler of ${verb} that awaits the client's close does not hang, and its message is not lost`,
        async () => {
          const client = await mortal(rig)
          const topic = await rig.topic(1, {}, client)
          await fillOneByOne(topic, ["a", "b"])
          const consumer = await topic.queue("work", { ackWaitMs: 500 }).consumer()
          const seen: string[] = []
          const handled = handleWith(consumer, verb, async (message) => {
            seen.push(text(message.payload))
            await settlesWithin("the close", client.close())
          })
          // The close may have come before the ack.
          await settlesWithin("the handling", handled).catch((error: unknown) => {
            assert.ok(error instanceof ClosedError || (error as Error).name === "TimeoutError", String(error))
          })
          // Which one: a message that took half of its wait to come is given back.
          assert.equal(seen.length, 1)
          if (rig.under.isolated !== undefined) return
          const queue = rig.through(await neighbour(rig), topic).queue("work")
          await using next = await queue.consumer()
          const run = next.run(() => {})
          await untilInfo(queue, "both messages done", ({ partitions }) => partitions[0]?.floor === 2n)
          await next.shutdown()
          await run
        },
      )
    }

    queueTest(rig, "ends every call that waits, and refuses later ones; the second call awaits the first", async () => {
      const { queue } = await filledQueue(rig, [])
      const consumer = await queue.consumer()
      const iterated = (async () => {
        for await (const _ of consumer) assert.fail("nothing was sent")
      })()
      const closed = [consumer.pull(), consumer.process(() => {}), consumer.processWithin(60_000, () => {})]
      const batch = consumer.processBatch(5, () => {})
      const run = consumer.run(() => {})
      const refusals = Promise.all([...closed, batch].map((call) => refused(() => call, "closed")))
      await settlesWithin("both shutdowns", Promise.all([consumer.shutdown(), consumer.shutdown()]))
      await settlesWithin("the calls that waited", refusals)
      await settlesWithin("the run and the loop", Promise.all([run, iterated]))
      for (const call of [
        () => consumer.pull(),
        () => consumer.process(() => {}),
        () => consumer.processWithin(10, () => {}),
        () => consumer.processBatch(1, () => {}),
        () => consumer.run(() => {}),
      ]) {
        await refused(() => settlesWithin("a later call", call() as Promise<unknown>), "closed")
      }
      assert.deepEqual(await consumer[Symbol.asyncIterator]().next(), { done: true, value: undefined })
      await consumer.shutdown()
    })

    queueTest(
      rig,
      "does not wait for a handler that hangs: TimeoutError, its signal fires, its message comes again",
      async () => {
        const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 800 })
        const consumer = await queue.consumer()
        let aborted = false
        const hangs = Promise.withResolvers<void>()
        const handling = consumer.process(async (_, { signal }) => {
          signal.addEventListener("abort", () => {
            aborted = true
            hangs.resolve()
          })
          await hangs.promise
        })
        const outcome = handling.then(
          () => "done",
          (error: unknown) => error,
        )
        await until("the handler", () => consumer.statistics.running === 1 || undefined)
        await assert.rejects(settlesWithin("the shutdown", consumer.shutdown({ timeoutMs: 50 })), TimeoutError)
        assert.ok(aborted)
        const ended = await settlesWithin("the handling", outcome)
        assert.ok(ended instanceof ClosedError, String(ended))
        await using next = await queue.consumer()
        const again = await pulledOne(next)
        assert.ok(again.deliveries >= 2)
      },
    )

    queueTest(rig, "a consumer of a client that is closed, and the opening of one, are refused", async () => {
      const client = await mortal(rig)
      const topic = await rig.topic(1, {}, client)
      const queue = topic.queue("work")
      const opening = queue.consumer().then(
        (consumer) => consumer.pull(),
        (error: unknown) => Promise.reject(error),
      )
      const refusal = refused(() => opening, "closed")
      await settlesWithin("the close", client.close())
      await settlesWithin("the opening", refusal)
      for (const call of [() => queue.consumer(), () => queue.info(), () => queue.delete(), () => queue.redrive()]) {
        await refused(() => settlesWithin("a later call", call() as Promise<unknown>), "closed")
      }
    })
  })
}

/** Of a queue that was deleted: one of its name knows nothing. */
async function startsAnew(queue: Queue): Promise<void> {
  await using consumer = await queue.consumer()
  assert.deepEqual(deliveriesOf(await pulled(consumer, 2)), ["a#1", "b#1"])
  await untilInfo(queue, "both handed out", ({ ackPending }) => ackPending === 2)
}

function handleWith(
  consumer: QueueConsumer,
  verb: "process" | "processBatch" | "run",
  handle: (message: QueueMessage) => Promise<void>,
): Promise<unknown> {
  return verb === "processBatch" ? consumer.processBatch(2, handle) : consumer[verb](handle)
}

async function iterated(consumer: QueueConsumer): Promise<void> {
  for await (const message of consumer) assert.fail(`message ${message.position.offset} came`)
}
