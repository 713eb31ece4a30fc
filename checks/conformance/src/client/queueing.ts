/** Chapter: work queues by hand: who gets a message, and what settles it. */
import assert from "node:assert/strict"
import { describe } from "node:test"
import { CancelledError, type QueueMessage } from "millrace"
import { type ClientRig, fill, fillOneByOne } from "../rig/client-rig.ts"
import { isPending, settlesWithin } from "../rig/deadline.ts"
import { numbered, text, texts } from "../rig/records.ts"
import {
  deliveriesOf,
  filledQueue,
  neighbour,
  nothingPulled,
  pulled,
  pulledOne,
  queueTest,
  untilDone,
} from "../rig/work-queues.ts"

export function queueingChapter(rig: ClientRig): void {
  describe("queues: pull", { concurrency: true }, () => {
    queueTest(rig, "gives what there is, at most as many as are wanted, in the order of the log", async () => {
      const { queue } = await filledQueue(rig, numbered("m", 0, 10))
      await using consumer = await queue.consumer()
      assert.deepEqual(deliveriesOf(await consumer.pull()), ["m0#1"])
      assert.deepEqual(deliveriesOf(await pulled(consumer, 4)), ["m1#1", "m2#1", "m3#1", "m4#1"])
      const rest = await pulled(consumer, 5)
      assert.deepEqual(texts(rest), numbered("m", 5, 10))
      assert.deepEqual((await queue.info()).ackPending, 10)
    })

    queueTest(rig, "waits for a first message: for ever, for so long, or not at all", async () => {
      const { topic, queue } = await filledQueue(rig, [])
      await using consumer = await queue.consumer()
      assert.deepEqual(await consumer.pull({ maxWaitMs: 0 }), [])
      const began = performance.now()
      assert.deepEqual(await consumer.pull({ maxWaitMs: 80, max: 5 }), [])
      assert.ok(performance.now() - began >= 75, "the wait was cut short")
      const waiting = consumer.pull({ max: 5 })
      assert.ok(await isPending(waiting))
      await fillOneByOne(topic, ["late"])
      assert.deepEqual(deliveriesOf(await settlesWithin("the pull", waiting)), ["late#1"])
      await fillOneByOne(topic, ["there"])
      assert.deepEqual(deliveriesOf(await consumer.pull({ maxWaitMs: 0, max: 5 })), ["there#1"])
    })

    queueTest(rig, "that is cancelled takes nothing with it, and others go on", async () => {
      const { topic, queue } = await filledQueue(rig, [])
      const own = new AbortController()
      const consumer = await queue.consumer({ signal: own.signal })
      const stop = new AbortController()
      const waiting = consumer.pull({ signal: stop.signal })
      const other = consumer.pull()
      stop.abort()
      await assert.rejects(settlesWithin("the cancelled pull", waiting), CancelledError)
      await assert.rejects(consumer.pull({ signal: stop.signal }), CancelledError)
      await fillOneByOne(topic, ["a"])
      assert.deepEqual(deliveriesOf(await settlesWithin("the other pull", other)), ["a#1"])
      const last = consumer.pull()
      own.abort()
      await assert.rejects(settlesWithin("the pull of a consumer whose signal fired", last), CancelledError)
      await assert.rejects(
        consumer.process(() => {}),
        CancelledError,
      )
      await consumer.shutdown()
    })

    queueTest(rig, "gives each message to one of many takers, in one client and in another", async () => {
      const topic = await rig.topic(3)
      const queue = topic.queue("work", { maxAckPending: false })
      const other = rig.through(await neighbour(rig), topic).queue("work")
      const takers = [await queue.consumer(), await queue.consumer(), await other.consumer()]
      const seen: string[] = []
      const loops = takers.map(async (taker) => {
        for await (const message of taker) {
          seen.push(text(message.payload))
          await message.ack()
        }
      })
      for (let partition = 0; partition < 3; partition++)
        await fill(topic, numbered(`p${partition}-`, 0, 60), partition)
      await untilDone(queue)
      for (const taker of takers) await taker.shutdown()
      await settlesWithin("the loops", Promise.all(loops))
      const expected = [0, 1, 2].flatMap((partition) => numbered(`p${partition}-`, 0, 60))
      assert.deepEqual(seen.sort(), expected.sort())
      assert.deepEqual(
        (await queue.info()).partitions.map(({ floor, next }) => [floor, next]),
        [
          [60n, 60n],
          [60n, 60n],
          [60n, 60n],
        ],
      )
    })

    queueTest(rig, "hands out no more than maxAckPending, over all consumers, until something is settled", async () => {
      const { queue } = await filledQueue(rig, numbered("m", 0, 5), { maxAckPending: 2 })
      await using one = await queue.consumer()
      await using other = await queue.consumer({ prefetch: 0 })
      const [first] = await pulled(one, 2)
      await nothingPulled(other)
      const waiting = other.pull()
      assert.equal(await first?.ack(), true)
      assert.deepEqual(texts(await settlesWithin("the pull behind the ack", waiting)), ["m2"])
      assert.equal((await queue.info()).ackPending, 2)
    })

    queueTest(
      rig,
      "the iterator gives one by one; what a call waited for when it is left is the next call's",
      async () => {
        const { topic, queue } = await filledQueue(rig, ["a", "b"])
        await using consumer = await queue.consumer()
        for await (const message of consumer) {
          assert.equal(await message.ack(), true)
          if (text(message.payload) === "b") break
        }
        const iterator = consumer[Symbol.asyncIterator]()
        const next = iterator.next()
        assert.ok(await isPending(next))
        await iterator.return?.()
        await settlesWithin(
          "the call that waited",
          next.catch(() => {}),
        )
        await fillOneByOne(topic, ["c"])
        assert.deepEqual(deliveriesOf([await pulledOne(consumer)]), ["c#1"])
      },
    )
  })

  describe("queues: settlements", { concurrency: true }, () => {
    queueTest(rig, "ack ends a message, nak brings it again, later if it says so, terminate never", async () => {
      const { queue } = await filledQueue(rig, ["ack", "nak", "later", "never"])
      await using consumer = await queue.consumer()
      const [ack, nak, later, never] = (await pulled(consumer, 4)) as [
        QueueMessage,
        QueueMessage,
        QueueMessage,
        QueueMessage,
      ]
      const began = performance.now()
      assert.equal(await later.nak({ delayMs: 250 }), true)
      assert.deepEqual(await Promise.all([ack.ack(), nak.nak(), never.terminate("no such thing")]), [true, true, true])
      assert.deepEqual(deliveriesOf([await pulledOne(consumer)]), ["nak#2"])
      const { delayed, ackPending, pending } = await queue.info()
      assert.ok(delayed <= 1 && ackPending >= 1 && pending === 0n)
      const [again] = await pulled(consumer, 1)
      assert.ok(performance.now() - began >= 245, "it came before its delay was over")
      assert.deepEqual(deliveriesOf([again as QueueMessage]), ["later#2"])
      await nothingPulled(consumer)
      assert.equal(consumer.statistics.exhausted, 1)
    })

    queueTest(rig, "the first terminal call decides; later ones answer false and change nothing", async () => {
      const { queue } = await filledQueue(rig, ["a", "b", "c"])
      await using consumer = await queue.consumer()
      const [a, b, c] = (await pulled(consumer, 3)) as [QueueMessage, QueueMessage, QueueMessage]
      const outcomes = await Promise.all([
        Promise.all([a.ack(), a.nak(), a.terminate("x"), a.ack({ confirm: true })]),
        Promise.all([b.nak({ delayMs: 0 }), b.ack(), b.inProgress()]),
        Promise.all([c.terminate("bad"), c.ack(), c.nak()]),
      ])
      assert.deepEqual(outcomes, [
        [true, false, false, false],
        [true, false, false],
        [true, false, false],
      ])
      assert.deepEqual(deliveriesOf(await pulled(consumer, 1)), ["b#2"])
      await nothingPulled(consumer)
      assert.equal(await b.ack(), false, "a delivery that was given back cannot settle the next one")
    })

    queueTest(rig, "ack with confirm is done for everybody who looks afterwards", async () => {
      const { topic, queue } = await filledQueue(rig, ["a", "b"])
      await using consumer = await queue.consumer()
      const [a, b] = await pulled(consumer, 2)
      assert.equal(await a?.ack({ confirm: true }), true)
      const other = rig.through(await neighbour(rig), topic).queue("work")
      assert.deepEqual((await other.info()).partitions[0], { partition: 0, floor: 1n, next: 2n })
      assert.equal(await b?.ack({ confirm: true }), true)
      assert.deepEqual((await other.info()).partitions[0], { partition: 0, floor: 2n, next: 2n })
    })

    queueTest(
      rig,
      "an ack after the deadline answers false: the message is another's, from another client",
      async () => {
        const { topic, queue } = await filledQueue(rig, ["a"], { ackWaitMs: 250 })
        await using late = await queue.consumer()
        await using other = await rig
          .through(await neighbour(rig), topic)
          .queue("work")
          .consumer()
        const began = performance.now()
        const mine = await pulledOne(late)
        const theirs = await pulledOne(other)
        assert.ok(performance.now() - began >= 240, "it came before its wait was over")
        assert.ok(theirs.deliveries >= 2)
        assert.equal(await mine.inProgress(), false)
        assert.deepEqual(await Promise.all([mine.ack({ confirm: true }), mine.nak()]), [false, false])
        // Theirs may be over by now as well, on a slow machine: then it comes again.
        for (let message = theirs; !(await message.ack()); ) message = await pulledOne(other)
        await untilDone(queue)
      },
    )

    queueTest(rig, "inProgress begins the wait anew, as often as it is called", async () => {
      const { topic, queue } = await filledQueue(rig, ["a"], { ackWaitMs: 700 })
      await using consumer = await queue.consumer()
      await using other = await rig
        .through(await neighbour(rig), topic)
        .queue("work")
        .consumer()
      const message = await pulledOne(consumer)
      let last = performance.now()
      const coming = pulledOne(other).then((again) => ({ again, after: performance.now() - last }))
      for (let i = 0; i < 3; i++) {
        await new Promise((resolve) => setTimeout(resolve, 100))
        const asked = performance.now()
        if (!(await message.inProgress())) break
        last = asked
      }
      const { again, after } = await settlesWithin("the next delivery", coming)
      assert.ok(after >= 690, `it came ${after} ms after its wait was begun anew`)
      assert.ok(again.deliveries >= 2)
      assert.equal(await message.inProgress(), false)
    })

    queueTest(rig, "backoffMs are the waits of each delivery, the last one's for all that follow", async () => {
      const { queue } = await filledQueue(rig, ["a"], { backoffMs: [80, 320] })
      await using consumer = await queue.consumer({ prefetch: 0 })
      const began = performance.now()
      for (let last = 0; last < 4; ) {
        const { deliveries } = await pulledOne(consumer)
        const afterMs = performance.now() - began
        assert.ok(deliveries > last, "deliveries go up")
        // One that was too old when it arrived, on a slow machine, was handed to nobody, and counts.
        const waitsMs = [80, 320, 320].slice(0, deliveries - 1).reduce((sum, wait) => sum + wait, 0)
        assert.ok(afterMs >= waitsMs - 10, `delivery ${deliveries} came after ${afterMs} ms`)
        last = deliveries
      }
    })

    queueTest(
      rig,
      "ackPolicy all: an ack covers what was handed out of its partition before it, and no other",
      async () => {
        const topic = await rig.topic(2)
        const queue = topic.queue("work", { ackPolicy: "all" })
        await fill(topic, numbered("a", 0, 4), 0)
        await fill(topic, numbered("b", 0, 2), 1)
        await using consumer = await queue.consumer()
        const messages = await pulled(consumer, 6)
        const byText = new Map(messages.map((message) => [text(message.payload), message]))
        assert.equal(await byText.get("a2")?.ack(), true)
        const { partitions, ackPending } = await queue.info()
        assert.deepEqual(
          partitions.map(({ floor }) => floor),
          [3n, 0n],
        )
        assert.equal(ackPending, 3)
        assert.equal(await byText.get("a0")?.ack(), false, "it is settled already")
        assert.deepEqual(await Promise.all([byText.get("a3")?.ack(), byText.get("b1")?.ack()]), [true, true])
        await untilDone(queue)
      },
    )

    queueTest(
      rig,
      "ackPolicy none: handing out settles, at most once, and there is nothing to answer for",
      async () => {
        const { queue } = await filledQueue(rig, ["a", "b", "c"], { ackPolicy: "none" })
        const consumer = await queue.consumer()
        const [a, b] = (await pulled(consumer, 2)) as [QueueMessage, QueueMessage]
        assert.deepEqual(await Promise.all([b.nak(), b.inProgress(), b.terminate()]), [false, false, false])
        assert.equal(await a.ack({ confirm: true }), true)
        await consumer.shutdown()
        const { ackPending, pending } = await queue.info()
        assert.deepEqual([ackPending, pending], [0, 1n])
        await using next = await queue.consumer()
        assert.deepEqual(deliveriesOf([await pulledOne(next)]), ["c#1"])
      },
    )
  })
}
