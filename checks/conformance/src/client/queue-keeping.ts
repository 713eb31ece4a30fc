/** Chapter: what a work queue keeps, where it begins, what it tells of itself, and what becomes of it when its topic changes. */
import assert from "node:assert/strict"
import { describe } from "node:test"
import type { QueueMessage } from "millrace"
import { type ClientRig, encode, fillOneByOne, oddNames, takeTexts } from "../rig/client-rig.ts"
import { patienceMs, settlesWithin } from "../rig/deadline.ts"
import { numbered, text, texts } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"
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

export function queueKeepingChapter(rig: ClientRig): void {
  describe("queues: what is kept", { concurrency: true }, () => {
    queueTest(rig, "two queues of one topic know nothing of each other, and the topic nothing of them", async () => {
      const { topic, queue } = await filledQueue(rig, ["a", "b"])
      await using one = await queue.consumer()
      await using other = await topic.queue("billing").consumer()
      for (const consumer of [one, other]) {
        const messages = await pulled(consumer, 2)
        assert.deepEqual(deliveriesOf(messages), ["a#1", "b#1"])
        await Promise.all(messages.map((message) => message.ack()))
      }
      const consumer = topic.consumer("plain", 0)
      assert.deepEqual(await takeTexts(consumer, 2), ["a", "b"])
      await consumer.shutdown()
    })

    queueTest(rig, "begins where startAt says, and partitions are told apart", async () => {
      const topic = await rig.topic(2)
      await fillOneByOne(topic, ["a", "b", "c"], 0)
      const third = (
        await topic.consumer(undefined, 0, { startAt: { kind: "offset", value: 2n } }).nextWithin(patienceMs)
      ).timestampMicros
      const starts = {
        first: [{ kind: "first" }, ["a", "b", "c"]],
        last: [{ kind: "last" }, ["c"]],
        offset: [{ kind: "offset", value: 1n }, ["b", "c"]],
        time: [{ kind: "timestampMicros", value: third }, ["c"]],
        next: [{ kind: "next" }, []],
      } as const
      for (const [name, [startAt, expected]] of Object.entries(starts)) {
        await using consumer = await topic.queue(name, { startAt }).consumer()
        assert.deepEqual(texts(await pulled(consumer, expected.length)), expected, name)
        await nothingPulled(consumer, 0)
      }
      await fillOneByOne(topic, ["d"], 1)
      await using consumer = await topic.queue("next").consumer()
      const d = await pulledOne(consumer)
      assert.deepEqual([text(d.payload), d.position.partition, d.position.offset], ["d", 1, 0n])
      await using kept = await topic.queue("last", { startAt: { kind: "first" } }).consumer()
      assert.deepEqual(texts(await pulled(kept, 1)), ["d"], "startAt speaks of the making alone")
    })

    queueTest(
      rig,
      "exists with its first consumer, keeps what it was made with, and refuses what differs by name",
      async () => {
        const topic = await rig.topic()
        const without = topic.queue("work", { createQueue: false })
        await refused(() => without.consumer(), { kind: "not-found", says: ['"work"'] })
        await refused(() => topic.queue("work").info(), "not-found")
        await refused(() => topic.queue("work").delete(), "not-found")
        const spec = { ackWaitMs: 1234, maxDeliver: 3, maxAckPending: 7, ackPolicy: "explicit" } as const
        await using made = await topic.queue("work", spec).consumer()
        await using found = await without.consumer()
        for (const each of [made.spec, found.spec, (await without.info()).spec]) {
          const { startAt, backoffMs, ...rest } = each
          assert.deepEqual(rest, spec)
          assert.deepEqual([startAt, backoffMs], [{ kind: "first" }, []])
        }
        const differing = [
          [{ ackWaitMs: 1 }, /ackWaitMs.*1234|1234.*ackWaitMs/s],
          [{ maxDeliver: 4 }, /maxDeliver/],
          [{ maxAckPending: false }, /maxAckPending/],
          [{ ackPolicy: "all" }, /ackPolicy/],
          [{ backoffMs: [5] }, /backoffMs/],
        ] as const
        for (const [options, says] of differing) {
          await refused(() => topic.queue("work", options).consumer(), { kind: "invalid", says: ['"work"', says] })
        }
        await refused(() => rig.handle().queue("work").consumer(), "not-found")
      },
    )

    queueTest(rig, "opened by many at once is made once; of two that differ one is refused", async () => {
      const topic = await rig.topic()
      const neighbours = rig.through(await neighbour(rig), topic)
      const same = [topic, neighbours, topic, neighbours].map((each) =>
        each.queue("same", { maxDeliver: 3 }).consumer(),
      )
      for (const consumer of await Promise.all(same)) await consumer.shutdown()
      const differing = [topic, neighbours].map((each, i) => each.queue("work", { maxDeliver: 3 + i }).consumer())
      const outcomes = await Promise.allSettled(differing)
      const [opened] = outcomes.filter((outcome) => outcome.status === "fulfilled")
      const [failed] = outcomes.filter((outcome) => outcome.status === "rejected")
      checkedRefusal(failed?.reason, { kind: "invalid", says: ['"work"', "maxDeliver"] })
      assert.equal((await topic.queue("work").info()).spec.maxDeliver, opened?.value.spec.maxDeliver)
      await opened?.value.shutdown()
    })

    queueTest(rig, "names that differ only in what has to be escaped or folded are queues of their own", async () => {
      const topic = await rig.topic()
      await fillOneByOne(topic, ["a"])
      for (const name of oddNames) {
        await using consumer = await topic.queue(name).consumer()
        assert.deepEqual(deliveriesOf([await pulledOne(consumer)]), ["a#1"], name)
        assert.equal((await topic.queue(name).info()).name, name)
      }
    })

    queueTest(rig, "maxBytes bounds what one request takes; a message above it comes alone", async () => {
      const topic = await rig.topic()
      await topic.producer().sendBatch([700, 700, 5_000, 700].map((bytes) => new Uint8Array(bytes)))
      await using consumer = await topic.queue("work").consumer({ maxBytes: 2_000, prefetch: 0 })
      const counts: number[] = []
      for (let left = 4; left > 0; left -= counts.at(-1) as number) {
        const messages = await consumer.pull({ max: 10, maxWaitMs: patienceMs })
        const bytes = messages.reduce((sum, { payload }) => sum + (payload?.length ?? 0), 0)
        assert.ok(messages.length === 1 || bytes <= 2_000, `${messages.length} messages of ${bytes} bytes`)
        counts.push(messages.length)
      }
      assert.ok(counts.length >= 3)
    })

    queueTest(
      rig,
      "what a transaction has sent is handed out once it is committed, and never when it is aborted",
      async (t) => {
        const { transactions } = rig.client.manifest
        if (!transactions.supported) return t.skip(transactions.reason)
        const { topic, queue } = await filledQueue(rig, [])
        await using consumer = await queue.consumer()
        await using producer = rig.client.transactionalProducer({ transactionalId: rig.name("queued") })
        await producer.init()
        for (const ending of ["abort", "commit"] as const) {
          const transaction = await producer.begin()
          await transaction.send(topic, encode(ending))
          await nothingPulled(consumer)
          await transaction[ending]()
        }
        assert.deepEqual(deliveriesOf([await pulledOne(consumer)]), ["commit#1"])
        await nothingPulled(consumer, 0)
      },
    )

    queueTest(rig, "has the defaults of the table where nothing is said", async () => {
      const topic = await rig.topic()
      await using consumer = await topic.queue("work").consumer()
      assert.deepEqual(
        { ...consumer.spec, maxDeliver: consumer.spec.maxDeliver },
        {
          ackWaitMs: 30_000,
          backoffMs: [],
          maxDeliver: undefined,
          maxAckPending: 1000,
          ackPolicy: "explicit",
          startAt: { kind: "first" },
        },
      )
    })

    queueTest(rig, "info counts what is pending, handed out, redelivered and delayed", async () => {
      const { topic, queue } = await filledQueue(rig, numbered("m", 0, 6))
      const consumer = await queue.consumer({ prefetch: 0 })
      const before = await queue.info()
      assert.deepEqual(
        [
          before.stream,
          before.topic,
          before.name,
          before.pending,
          before.ackPending,
          before.redelivered,
          before.delayed,
        ],
        [topic.stream, topic.name, "work", 6n, 0, 0, 0],
      )
      if (before.createdMicros !== undefined) assert.ok(before.createdMicros > 1_600_000_000_000_000n)
      const [a, b, c] = (await pulled(consumer, 3)) as [QueueMessage, QueueMessage, QueueMessage]
      assert.equal(await a.ack(), true)
      assert.equal(await b.nak({ delayMs: 60_000 }), true)
      assert.equal(await c.nak(), true)
      assert.deepEqual(deliveriesOf([await pulledOne(consumer)]), ["m2#2"])
      const { pending, ackPending, redelivered, delayed, partitions } = await queue.info()
      assert.deepEqual({ pending, redelivered, delayed }, { pending: 3n, redelivered: 2, delayed: 1 })
      assert.ok(ackPending >= 1 && ackPending <= 2)
      assert.deepEqual(partitions, [{ partition: 0, floor: 1n, next: 3n }])
      await consumer.shutdown()
    })

    queueTest(rig, "a partition that is added is read from its first record", async (t) => {
      const { addPartitions } = rig.client.manifest.catalog
      if (!addPartitions.supported) return t.skip(addPartitions.reason)
      const topic = await rig.topic()
      await using consumer = await topic.queue("work", { startAt: { kind: "next" } }).consumer()
      const waiting = pulledOne(consumer)
      await topic.addPartitions(2)
      await fillOneByOne(topic, ["new"], 2)
      const message = await settlesWithin("the message of the new partition", waiting)
      assert.deepEqual([text(message.payload), message.position.partition], ["new", 2])
      assert.equal(await message.ack(), true)
      await fillOneByOne(topic, ["old"], 0)
      assert.deepEqual(texts([await pulledOne(consumer)]), ["old"])
    })

    queueTest(rig, "what is trimmed leaves the queue, and its ack comes too late", async (t) => {
      const { trim } = rig.client.manifest.catalog
      if (!trim.supported) return t.skip(trim.reason)
      const { topic, queue } = await filledQueue(rig, numbered("m", 0, 4))
      await using consumer = await queue.consumer({ prefetch: 0 })
      const held = await pulledOne(consumer)
      await topic.trim(0, 2n)
      assert.deepEqual(texts(await pulled(consumer, 2)), ["m2", "m3"])
      assert.equal(await held.ack(), false)
    })

    queueTest(rig, "a purge takes the messages away, and the queue goes on at what is sent behind it", async () => {
      const { topic, queue } = await filledQueue(rig, ["a", "b", "c"])
      await using consumer = await queue.consumer({ prefetch: 0 })
      const held = await pulledOne(consumer)
      assert.equal(await consumer.process((message) => text(message.payload)), "b")
      await topic.purge()
      await fillOneByOne(topic, ["d", "e"])
      assert.equal(
        await settlesWithin(
          "d",
          consumer.process((message) => text(message.payload)),
        ),
        "d",
      )
      assert.equal(
        await settlesWithin(
          "e",
          consumer.process((message) => text(message.payload)),
        ),
        "e",
      )
      assert.equal(await held.ack(), false)
      assert.equal(consumer.statistics.skipped, 0, "the window is that of the history before")
      await untilDone(queue)
    })
  })
}
