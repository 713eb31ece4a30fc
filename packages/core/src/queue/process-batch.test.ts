import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { NotFoundError } from "@millrace/contract"
import { QueueRig, textOf, watch } from "./fake-queue.test-support.ts"

const values = (results: readonly PromiseSettledResult<unknown>[] | undefined): unknown[] | undefined =>
  results?.map((result) => (result.status === "fulfilled" ? result.value : result.reason))

describe("processBatch", () => {
  test("a first message that the dedupe window has is none: it goes on waiting", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({}, { batchTimeoutMs: 20 })
    consumer.dedupeWindow.markProcessed(0, 0n)
    rig.broker.putTexts("a")
    const batch = watch(consumer.processBatch(10, textOf))
    await rig.clock.advance(60_000)
    assert.deepEqual([batch.done, rig.broker.offsets("done")], [false, [0n]])
    rig.broker.putTexts("b")
    await rig.clock.advance(20)
    assert.deepEqual(values(batch.value), ["b"])
    await consumer.shutdown()
  })

  test("waits for a first message for ever, then for more until its time is over", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({}, { batchTimeoutMs: 20 })
    const batch = watch(consumer.processBatch(10, textOf))
    await rig.clock.advance(3_600_000)
    rig.broker.putTexts("a")
    await rig.clock.advance(10)
    rig.broker.putTexts("b", "c")
    await rig.clock.advance(9)
    assert.equal(batch.done, false)
    await rig.clock.advance(1)
    assert.deepEqual(values(batch.value), ["a", "b", "c"])
    assert.deepEqual(rig.broker.offsets("done"), [0n, 1n, 2n])
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("ends when it is full, with one request for its acks, and marks what it handled", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b", "c", "d")
    const batch = watch(consumer.processBatch(3, textOf))
    await rig.settle()
    assert.deepEqual(values(batch.value), ["a", "b", "c"])
    assert.equal(rig.broker.requests, 1)
    assert.deepEqual([consumer.dedupeWindow.min(0), consumer.dedupeWindow.max(0)], [0n, 2n])
    assert.deepEqual(rig.broker.pulls[0]?.maxMessages, 3)
    await consumer.shutdown()
  })

  test("ends at the first failure with it as the last item, without acknowledging it or taking what is behind", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "bad", "c")
    const failure = new Error("bad")
    const seen: string[] = []
    const batch = watch(
      consumer.processBatch(10, async (message) => {
        seen.push(textOf(message))
        if (textOf(message) === "bad") throw failure
        return seen.length
      }),
    )
    await rig.settle()
    assert.deepEqual(
      [values(batch.value), seen],
      [
        [1, failure],
        ["a", "bad"],
      ],
    )
    assert.deepEqual(
      rig.broker.settled.map(({ offset, verdict }) => [offset, verdict]),
      [
        [0n, "ack"],
        [1n, "nak"],
      ],
    )
    assert.equal(consumer.dedupeWindow.alreadyProcessed(0, 1n), false)
    const rest = watch(consumer.processBatch(10, textOf))
    await rig.clock.advance(200)
    assert.deepEqual(values(rest.value)?.[0], "c")
    await consumer.shutdown()
  })

  test("an ack that fails is the last item, and what was handled stays marked", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b")
    const gone = new NotFoundError("gone")
    rig.broker.settleFailures.push(gone)
    const batch = watch(consumer.processBatch(2, textOf))
    await rig.settle()
    assert.deepEqual(values(batch.value), ["a", "b", gone])
    assert.equal(consumer.dedupeWindow.alreadyProcessed(0, 1n), true)
    await consumer.shutdown()
  })

  test("skips and acknowledges what the window has", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    consumer.dedupeWindow.markProcessed(0, 1n)
    rig.broker.putTexts("a", "b", "c")
    const batch = watch(consumer.processBatch(2, textOf))
    await rig.clock.advance(100)
    assert.deepEqual(values(batch.value), ["a", "c"])
    assert.deepEqual(rig.broker.offsets("done"), [0n, 1n, 2n])
    await consumer.shutdown()
  })

  test("a handler may stop it", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b")
    assert.equal((await consumer.processBatch(2, textOf)).length, 2)
    rig.broker.putTexts("c", "d")
    const stopped = watch(
      consumer.processBatch(2, (message, context) => {
        context.stop()
        return textOf(message)
      }),
    )
    await rig.settle()
    assert.deepEqual(values(stopped.value), ["c"])
    await consumer.shutdown()
  })
})

describe("under ackPolicy all", () => {
  test("one ack for each partition covers the batch", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all" })
    rig.broker.putTexts("a", "b", "c")
    rig.broker.put([{ payload: new Uint8Array(1) }, { payload: new Uint8Array(2) }], 1)
    const batch = watch(consumer.processBatch(5, ({ payload }) => payload?.length))
    await rig.settle()
    assert.equal(batch.value?.length, 5)
    assert.deepEqual(
      rig.broker.settled.map(({ offset, verdict }) => [offset, verdict]),
      [
        [2n, "ack"],
        [1n, "ack"],
      ],
    )
    assert.deepEqual(rig.broker.offsets("done").length, 5)
    await consumer.shutdown()
  })

  test("behind a failure everything comes again in order, so that no later ack covers it", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all" })
    rig.broker.putTexts("a", "b", "c", "d")
    let failures = 3
    const done: string[] = []
    const batches = async (): Promise<void> => {
      while (done.length < 4) {
        await consumer.processBatch(4, (message) => {
          if (textOf(message) === "b" && failures-- > 0) throw new Error("not yet")
          done.push(textOf(message))
        })
      }
    }
    const working = watch(batches())
    await rig.clock.advance(1000)
    assert.deepEqual([working.done, working.error], [true, undefined])
    assert.deepEqual(done, ["a", "b", "c", "d"])
    assert.equal(rig.broker.offsets("done").length, 4)
    await consumer.shutdown()
  })

  test("what one answer brings is handled in the order of the log, whatever its own", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all" })
    rig.broker.choose = (entries) => entries.toReversed()
    rig.broker.putTexts("a", "b", "c", "d")
    const batch = watch(consumer.processBatch(4, textOf))
    await rig.settle()
    assert.deepEqual(values(batch.value), ["a", "b", "c", "d"])
    assert.deepEqual(
      rig.broker.settled.map(({ offset, verdict }) => [offset, verdict]),
      [[3n, "ack"]],
    )
    await consumer.shutdown()
  })

  test("a message that was handled too early goes back instead of being acknowledged over one that was not, and is skipped then", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all" })
    rig.broker.choose = (entries) => entries.filter(({ offset }) => offset === 2n)
    rig.broker.putTexts("a", "b", "c")
    const first = watch(
      consumer.processBatch(3, (message, context) => {
        if (textOf(message) === "a") context.stop()
        return textOf(message)
      }),
    )
    await rig.settle()
    rig.broker.choose = undefined
    rig.broker.wake()
    await rig.clock.advance(60)
    assert.deepEqual(values(first.value), ["c", "a"])
    assert.deepEqual(rig.broker.offsets("done"), [0n])
    const second = watch(consumer.processBatch(5, textOf))
    await rig.clock.advance(100)
    assert.deepEqual(values(second.value), ["b"])
    assert.equal(rig.broker.offsets("done").length, 3)
    await consumer.shutdown()
  })

  test("nothing behind a failure is acknowledged, also of what was handled already", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all" })
    rig.broker.choose = (entries) => entries.filter(({ offset }) => offset === 2n)
    rig.broker.putTexts("a", "b", "c")
    let fails = true
    const handler = (message: { readonly payload: Uint8Array | null }): string => {
      if (textOf(message) === "b" && fails) throw new Error("b")
      return textOf(message)
    }
    const first = watch(consumer.processBatch(5, handler))
    await rig.settle()
    rig.broker.choose = undefined
    rig.broker.wake()
    await rig.clock.advance(60)
    assert.deepEqual(values(first.value)?.slice(0, 2), ["c", "a"])
    assert.deepEqual(rig.broker.offsets("done"), [0n])
    fails = false
    const second = watch(consumer.processBatch(5, handler))
    await rig.clock.advance(100)
    assert.deepEqual([values(second.value), rig.broker.offsets("done").length], [["b"], 3])
    await consumer.shutdown()
  })

  test("what was handled does not run out of its wait while a later handler takes long", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all", ackWaitMs: 1000 })
    rig.broker.putTexts("a", "b", "c")
    const batch = watch(
      consumer.processBatch(3, (message) =>
        textOf(message) === "c" ? new Promise<void>((resolve) => void rig.clock.setTimer(5000, resolve)) : undefined,
      ),
    )
    await rig.clock.advance(900)
    assert.deepEqual(rig.broker.offsets("done"), [0n, 1n])
    await rig.clock.advance(5000)
    assert.deepEqual([batch.value?.length, rig.broker.offsets("done").length], [3, 3])
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("a batch that takes longer than a wait acknowledges in between", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all", ackWaitMs: 1000 })
    rig.broker.putTexts(..."abcdefgh")
    const seen: string[] = []
    const batch = watch(
      consumer.processBatch(8, (message) => {
        seen.push(textOf(message))
        return new Promise<void>((resolve) => void rig.clock.setTimer(300, resolve))
      }),
    )
    await rig.clock.advance(20_000)
    assert.deepEqual([...new Set(seen)], [..."abcdefgh"].slice(0, new Set(seen).size))
    assert.equal(batch.done, true)
    assert.equal(consumer.statistics.late, 0)
    await consumer.shutdown()
  })
})

test("under ackPolicy none handing out settles: ack is true without a request, nothing else counts", async () => {
  const rig = new QueueRig()
  const consumer = await rig.consumer({ ackPolicy: "none" })
  rig.broker.putTexts("a", "b")
  const [message] = await consumer.pull()
  assert.deepEqual(
    [
      await message?.nak(),
      await message?.inProgress(),
      await message?.terminate(),
      await message?.ack(),
      await message?.ack(),
    ],
    [false, false, false, true, false],
  )
  assert.equal(await consumer.process(textOf), "b")
  assert.equal(rig.broker.requests, 0)
  await consumer.shutdown()
  assert.equal(rig.clock.timers, 0)
})
