/** What happens to messages while they wait in the buffer or run in a handler: the ack clock goes on (case A-32). */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { StorageError } from "@millrace/contract"
import type { HandlerContext } from "../handler/handler-context.ts"
import { FakeQueueBroker, QueueRig, textOf, watch } from "./fake-queue.test-support.ts"
import type { QueueConsumer } from "./queue-consumer.ts"
import type { QueueMessage } from "./queue-message.ts"

/** A handler that takes so long. */
function taking(rig: QueueRig, ms: number, seen: string[]): (message: QueueMessage) => Promise<void> {
  return (message) => {
    seen.push(textOf(message))
    return new Promise((resolve) => void rig.clock.setTimer(ms, resolve))
  }
}

const ten = Array.from({ length: 10 }, (_, n) => String(n))

describe("ack wait 2 s, a handler of 1.5 s, 10 messages, two members: each is handled once", () => {
  const verbs: Record<
    string,
    (consumer: QueueConsumer, handler: (message: QueueMessage) => Promise<void>) => Promise<unknown>
  > = {
    run: (consumer, handler) => consumer.run(handler),
    process: async (consumer, handler) => {
      for (;;) await consumer.process(handler)
    },
    processBatch: async (consumer, handler) => {
      for (;;) await consumer.processBatch(10, handler)
    },
  }
  for (const [verb, work] of Object.entries(verbs)) {
    for (const prefetch of [undefined, 10]) {
      test(`${verb}, prefetch ${prefetch ?? "as it is"}`, async () => {
        const rig = new QueueRig()
        const own = prefetch === undefined ? {} : { prefetch }
        const members = [await rig.consumer({ ackWaitMs: 2000 }, own), await rig.consumer({ ackWaitMs: 2000 }, own)]
        rig.broker.putTexts(...ten)
        const seen: string[] = []
        const working = members.map((member) => work(member, taking(rig, 1500, seen)).catch(() => {}))
        await rig.clock.advance(60_000)
        assert.deepEqual([...seen].sort(), ten)
        assert.equal(rig.broker.offsets("done").length, 10)
        await Promise.all(members.map((member) => member.shutdown()))
        await Promise.all(working)
        assert.equal(rig.clock.timers, 0)
      })
    }
  }

  test("also when handlers become slow while the buffer is full", async () => {
    const rig = new QueueRig()
    const members = [await rig.consumer({ ackWaitMs: 2000 }), await rig.consumer({ ackWaitMs: 2000 })]
    rig.broker.putTexts(...Array.from({ length: 300 }, (_, n) => `fast ${n}`))
    let slow = false
    const seen: string[] = []
    const handler = (message: QueueMessage): Promise<void> => taking(rig, slow ? 1500 : 1, seen)(message)
    const working = members.map((member) => member.run(handler))
    await rig.clock.advance(40)
    assert.ok(
      members.every((member) => member.statistics.buffered > 4),
      "both have taken some ahead",
    )
    slow = true
    await rig.clock.advance(400_000)
    assert.equal(seen.length, 300 + members.reduce((sum, { statistics }) => sum + statistics.dropped, 0))
    assert.equal(new Set(seen).size, seen.length)
    assert.ok(members.every((member) => member.statistics.prefetch === 0))
    await Promise.all(members.map((member) => member.shutdown()))
    await Promise.all(working)
    assert.equal(rig.clock.timers, 0)
  })
})

describe("the buffer", () => {
  test("nothing is taken ahead before it is known how fast the handler is, and then what fits a quarter of the wait", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 2000 })
    rig.broker.putTexts(...ten)
    const seen: string[] = []
    const running = consumer.run(taking(rig, 100, seen))
    await rig.settle()
    assert.deepEqual([rig.broker.offsets("leased").length, consumer.statistics.prefetch], [1, 0])
    await rig.clock.advance(300)
    assert.equal(consumer.statistics.prefetch, 5)
    const ending = consumer.shutdown()
    await rig.clock.advance(100)
    await ending
    await running
  })

  test("a message whose wait went by in it is dropped and told, not handed over", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000, maxAckPending: 100 })
    const dropped: bigint[] = []
    consumer.on({ dropped: ({ position }) => void dropped.push(position.offset) })
    rig.broker.putTexts("a", "b", "c")
    // The program stood still between the answer and this moment: no look came in between.
    rig.broker.beforeAnswer = () => {
      rig.broker.beforeAnswer = undefined
      return new Promise((resolve) => void rig.clock.setTimer(800, resolve))
    }
    const pulled = watch(consumer.pull({ max: 3 }))
    await rig.clock.advance(800)
    await rig.settle()
    assert.deepEqual(dropped, [0n, 1n, 2n])
    await rig.clock.advance(1000)
    assert.deepEqual(
      pulled.value?.map((message) => message.deliveries),
      [2, 2, 2],
    )
    assert.equal(consumer.statistics.dropped, 3)
    await consumer.shutdown()
  })

  test("what nobody takes goes back before its wait is over", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    rig.broker.putTexts(...ten)
    for (let n = 0; n < 3; n++) await consumer.process(() => {})
    await rig.settle()
    assert.ok(consumer.statistics.buffered > 0)
    await rig.clock.advance(700)
    assert.equal(consumer.statistics.buffered, 0)
    assert.equal(rig.broker.offsets("leased").length, 0)
    await consumer.shutdown()
  })

  test("a clock that jumps changes nothing", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    rig.broker.putTexts("a")
    const seen: string[] = []
    const processing = watch(consumer.process(taking(rig, 5000, seen)))
    for (const jump of [1n, 4_000_000_000_000_000n, 5n, 1_700_000_000_000_000n]) {
      rig.clock.setWall(jump)
      await rig.clock.advance(1250)
    }
    assert.equal(processing.done, true)
    assert.deepEqual([seen, rig.broker.offsets("done")], [["a"], [0n]])
    await consumer.shutdown()
  })
})

describe("a handler that runs", () => {
  test("keeps its message for ten waits, and no longer: then its signal fires, and its ack comes too late", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    const late: bigint[] = []
    consumer.on({ late: ({ offset }) => void late.push(offset) })
    rig.broker.putTexts("a")
    let aborted = false
    const end = Promise.withResolvers<void>()
    const processing = watch(
      consumer.process((_, { signal }) => {
        signal.addEventListener("abort", () => {
          aborted = true
        })
        return end.promise
      }),
    )
    await rig.clock.advance(9900)
    assert.deepEqual([aborted, rig.broker.offsets("leased")], [false, [0n]])
    await rig.clock.advance(1500)
    assert.deepEqual([aborted, rig.broker.offsets("ready")], [true, [0n]])
    const other = await rig.consumer({ ackWaitMs: 1000 })
    const again = watch(other.process(({ deliveries }) => deliveries))
    await rig.settle()
    assert.equal(again.value, 2)
    end.resolve()
    await rig.settle()
    assert.deepEqual([processing.done, processing.error, late], [true, undefined, [0n]])
    await consumer.shutdown()
    await other.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("keeps it for maxExtendMs where that is given, and for its wait alone without autoExtend", async () => {
    for (const [own, untilMs] of [
      [{ maxExtendMs: 3000 }, 4000],
      [{ autoExtend: false }, 1000],
    ] as const) {
      const rig = new QueueRig()
      const consumer = await rig.consumer({ ackWaitMs: 1000 }, own)
      rig.broker.putTexts("a")
      const end = Promise.withResolvers<void>()
      const processing = watch(consumer.process(() => end.promise))
      await rig.clock.advance(untilMs - 400)
      assert.deepEqual(rig.broker.offsets("leased"), [0n], `${untilMs}`)
      await rig.clock.advance(400)
      assert.deepEqual(rig.broker.offsets("ready"), [0n], `${untilMs}`)
      end.resolve()
      await rig.settle()
      assert.equal(processing.done, true)
      await consumer.shutdown()
    }
  })

  test("and has settled its message is neither extended nor told that it is lost", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    rig.broker.putTexts("a", "b")
    let aborted = 0
    const handler = (early: boolean) => async (message: QueueMessage, context: HandlerContext) => {
      context.signal.addEventListener("abort", () => aborted++)
      if (!early) await new Promise<void>((resolve) => void rig.clock.setTimer(500, resolve))
      await message.ack()
      await new Promise<void>((resolve) => void rig.clock.setTimer(5000, resolve))
    }
    const both = watch(Promise.all([consumer.process(handler(true)), consumer.process(handler(false))]))
    await rig.clock.advance(6000)
    assert.deepEqual([both.done, both.error, aborted, rig.broker.offsets("done")], [true, undefined, 0, [0n, 1n]])
    assert.ok(rig.broker.settled.every(({ counts }) => counts))
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("a longer wait whose request fails is asked for again", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    rig.broker.putTexts("a")
    const seen: string[] = []
    const processing = watch(consumer.process(taking(rig, 3000, seen)))
    await rig.settle()
    rig.broker.settleFailures.push(new StorageError("once"))
    await rig.clock.advance(3000)
    assert.deepEqual([processing.done, processing.error, rig.broker.offsets("done")], [true, undefined, [0n]])
    await consumer.shutdown()
  })
})

test("the fake queue hands a message out again when its wait is over", async () => {
  const rig = new QueueRig()
  assert.ok(rig.broker instanceof FakeQueueBroker)
  const [one, two] = [await rig.consumer({ ackWaitMs: 100 }), await rig.consumer({ ackWaitMs: 100 })]
  rig.broker.putTexts("a")
  assert.equal((await one.pull()).length, 1)
  const again = watch(two.pull())
  await rig.clock.advance(100)
  assert.deepEqual(
    again.value?.map((message) => message.deliveries),
    [2],
  )
  await one.shutdown()
  await two.shutdown()
})
