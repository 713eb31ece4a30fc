/** Chapter: waits of work queues that run out: in the buffer, while handlers are slow, and while nothing runs at all. */
import assert from "node:assert/strict"
import { describe } from "node:test"
import { ClosedError, type QueueConsumer, type QueueMessage } from "millrace"
import { type ClientRig, fill } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { filledQueue, neighbour, pulled, pulledOne, queueTest, untilDone } from "../rig/work-queues.ts"

/** the wait of a message, and what its handler takes, in ms. */
const ackWaitMs = 2_000
const handlerMs = 1_500

type Handle = (message: QueueMessage) => Promise<void>

export function queueWaitsChapter(rig: ClientRig): void {
  // They wait most of their time: all at once they take as long as one.
  describe("queues: A-32", { concurrency: true }, () => {
    const fast = numbered("fast", 0, 30)
    const slow = numbered("slow", 0, 10)
    const ways: Record<string, (consumer: QueueConsumer, handle: Handle) => Promise<unknown>> = {
      run: (consumer, handle) => consumer.run(handle),
      process: async (consumer, handle) => {
        for (;;) await consumer.process(handle)
      },
      processBatch: async (consumer, handle) => {
        for (;;) await consumer.processBatch(2, handle)
      },
    }
    for (const [way, start] of Object.entries(ways)) {
      queueTest(
        rig,
        `${way}: two members whose handlers take 1.5 s of a wait of 2 s handle each message once`,
        async () => {
          const { topic, queue } = await filledQueue(rig, [], { ackWaitMs })
          const other = rig.through(await neighbour(rig), topic).queue("work")
          const members = [await queue.consumer(), await other.consumer()]
          const handled: string[] = []
          const handle: Handle = async (message) => {
            const name = text(message.payload)
            handled.push(name)
            assert.ok(message.deliveries >= 1)
            if (name.startsWith("slow")) await new Promise((resolve) => setTimeout(resolve, handlerMs))
          }
          const ends = members.map((member) => start(member, handle).catch((error: unknown) => error))
          // Quick ones first, so that the members have learned to take many ahead.
          await fill(topic, fast)
          await untilDone(queue)
          assert.ok(members.some(({ statistics }) => statistics.prefetch > 0))
          await fill(topic, slow)
          await untilDone(queue)
          assert.deepEqual([...handled].sort(), [...fast, ...slow].sort())
          for (const { statistics } of members) {
            assert.equal(statistics.late, 0)
            // A quarter of the wait has no room for a second handler: the next is taken when this one is done.
            if (statistics.received > 0) assert.ok(statistics.prefetch <= 4, `${statistics.prefetch} are taken ahead`)
          }
          for (const member of members) await member.shutdown()
          for (const end of await settlesWithin("the members", Promise.all(ends))) {
            assert.ok(end === undefined || end instanceof ClosedError, String(end))
          }
        },
      )
    }
  })

  describe("queues: waits that run out", () => {
    queueTest(
      rig,
      "A-32: what ran out while it lay in the buffer is dropped, told, and comes again fresh",
      async () => {
        const { topic, queue } = await filledQueue(rig, [], { ackWaitMs: 400 })
        await using consumer = await queue.consumer()
        await using other = await queue.consumer({ prefetch: 0 })
        const dropped: number[] = []
        consumer.on({ dropped: ({ deliveries }) => dropped.push(deliveries) })
        await fill(topic, numbered("quick", 0, 30))
        for (let i = 0; i < 30; i++) await consumer.process(() => {})
        await fill(topic, numbered("m", 0, 4))
        const first = await pulledOne(consumer)
        assert.equal(await first.ack(), true)
        await until("the rest to be in the buffer", () => consumer.statistics.buffered === 3 || undefined)
        // Gets them while nothing runs here: a stale one that is handed over is another's by then.
        const elsewhere = other.pull({ max: 10, maxWaitMs: 600 })
        blockFor(500)
        const handed = await consumer.pull({ max: 10, maxWaitMs: 0 })
        const seen = [first, ...handed, ...(await elsewhere)].map((message) => text(message.payload))
        for (const message of handed) {
          assert.equal(await message.ack(), true, `${text(message.payload)} was handed over when its wait was over`)
        }
        assert.ok(dropped.length >= 1)
        assert.equal(consumer.statistics.dropped, dropped.length)
        const runs = [consumer, other].map((each) => each.run((message) => seen.push(text(message.payload))))
        await untilDone(queue)
        for (const each of [consumer, other]) await each.shutdown()
        await Promise.all(runs)
        assert.deepEqual([...new Set(seen)].sort(), numbered("m", 0, 4))
      },
    )

    queueTest(rig, "what is in the buffer and wanted by nobody goes back, so that others get it", async () => {
      const { topic, queue } = await filledQueue(rig, [], { ackWaitMs: 900 })
      await using idle = await queue.consumer()
      await fill(topic, numbered("quick", 0, 30))
      for (let i = 0; i < 30; i++) await idle.process(() => {})
      await fill(topic, numbered("m", 0, 5))
      const first = await pulledOne(idle)
      assert.equal(await first.ack(), true)
      await until("messages in the buffer", () => idle.statistics.buffered > 0 || undefined)
      await using busy = await queue.consumer()
      const others = await pulled(busy, 4)
      assert.deepEqual(await Promise.all(others.map((message) => message.ack())), [true, true, true, true])
      assert.equal(idle.statistics.buffered, 0)
      await untilDone(queue)
    })
  })
}

/** Nothing else runs in this process meanwhile. */
function blockFor(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}
