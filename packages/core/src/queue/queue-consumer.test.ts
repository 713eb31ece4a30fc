import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, ConnectionError, NotFoundError, TimeoutError } from "@millrace/contract"
import { QueueRig, textOf, watch } from "./fake-queue.test-support.ts"
import type { QueueMessage } from "./queue-message.ts"

describe("pull", () => {
  test("gives what there is, with its delivery count, and waits where there is nothing", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    const pulled = watch(consumer.pull({ max: 10 }))
    await rig.clock.advance(60_000)
    assert.equal(pulled.done, false)
    rig.broker.putTexts("a", "b", "c")
    await rig.settle()
    assert.deepEqual(
      pulled.value?.map((message) => [textOf(message), message.deliveries]),
      [
        ["a", 1],
        ["b", 1],
        ["c", 1],
      ],
    )
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("answers none when the wait is over, and with a wait of 0 what is there", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    const none = watch(consumer.pull({ maxWaitMs: 100 }))
    await rig.clock.advance(100)
    assert.deepEqual(none.value, [])
    assert.deepEqual(await consumer.pull({ maxWaitMs: 0 }), [])
    rig.broker.putTexts("a")
    const late = watch(consumer.pull({ maxWaitMs: 0 }))
    await rig.settle()
    assert.deepEqual(late.value?.map(textOf), ["a"])
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("an ack takes the message out, a nak brings it again after its delay, a termination never", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b", "c")
    const [a, b, c] = (await consumer.pull({ max: 3 })) as [QueueMessage, QueueMessage, QueueMessage]
    const answers = Promise.all([a.ack(), b.nak({ delayMs: 50 }), c.terminate("useless")])
    await rig.settle()
    assert.deepEqual(await answers, [true, true, true])
    assert.equal(rig.broker.requests, 1, "settlements of one turn share a request")
    assert.equal(rig.broker.settled[2]?.reason, "useless")
    const again = watch(consumer.pull({ max: 3 }))
    await rig.clock.advance(49)
    assert.equal(again.done, false)
    await rig.clock.advance(1)
    assert.deepEqual(
      again.value?.map((message) => [textOf(message), message.deliveries]),
      [["b", 2]],
    )
    await consumer.shutdown()
  })

  test("the first terminal call wins, later ones ask nothing", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const [message] = (await consumer.pull()) as [QueueMessage]
    const answers = Promise.all([
      message.nak(),
      message.ack(),
      message.terminate(),
      message.inProgress(),
      message.nak(),
    ])
    await rig.settle()
    assert.deepEqual(await answers, [true, false, false, false, false])
    assert.equal(rig.broker.settled.length, 1)
    await consumer.shutdown()
  })

  test("inProgress begins the wait anew; an ack behind the end of the wait does not count", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    rig.broker.putTexts("a")
    const [message] = (await consumer.pull()) as [QueueMessage]
    await rig.clock.advance(800)
    assert.equal(await message.inProgress(), true)
    await rig.clock.advance(800)
    assert.deepEqual(rig.broker.offsets("leased"), [0n])
    await rig.clock.advance(200)
    assert.equal(await message.ack(), false)
    assert.equal(await message.ack(), false)
    await consumer.shutdown()
  })

  test("confirm asks for the durable answer", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b")
    const [a, b] = (await consumer.pull({ max: 2 })) as [QueueMessage, QueueMessage]
    await Promise.all([a.ack({ confirm: true }), b.ack()])
    assert.deepEqual(rig.broker.settled.map(({ offset, confirm }) => [offset, confirm]).sort(), [
      [0n, true],
      [1n, false],
    ])
    await consumer.shutdown()
  })

  test("a request that failed for good leaves the message open; one that may pass is tried again", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const [message] = (await consumer.pull()) as [QueueMessage]
    for (let n = 0; n < 5; n++) rig.broker.settleFailures.push(new ConnectionError("away", { outcome: "unknown" }))
    const first = watch(message.ack())
    await rig.clock.advance(10_000)
    assert.ok(first.error instanceof ConnectionError)
    rig.broker.settleFailures.push(new ConnectionError("away"))
    const second = watch(message.ack())
    await rig.clock.advance(1000)
    assert.equal(second.value, true)
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("behind the shutdown messages cannot be settled, and nothing can be pulled", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const [message] = (await consumer.pull()) as [QueueMessage]
    const waiting = watch(consumer.pull())
    await consumer.shutdown()
    assert.ok(waiting.error instanceof ClosedError)
    await assert.rejects(message.ack(), ClosedError)
    await assert.rejects(consumer.pull(), ClosedError)
    await assert.rejects(
      consumer.process(() => {}),
      ClosedError,
    )
    assert.equal(rig.broker.openSessions, 0)
    assert.equal(rig.client.owned.size, 0)
  })
})

describe("the iterator", () => {
  test("gives one by one, and ends with the consumer", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b", "c")
    const seen: string[] = []
    const loop = (async () => {
      for await (const message of consumer) {
        seen.push(textOf(message))
        void message.ack()
      }
    })()
    await rig.settle()
    assert.deepEqual(seen, ["a", "b", "c"])
    assert.deepEqual(rig.broker.offsets("done"), [0n, 1n, 2n])
    await consumer.shutdown()
    await loop
  })

  test("a message that a call waits for when the loop is left is the next call's", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    const iterator = consumer[Symbol.asyncIterator]()
    const waiting = iterator.next()
    await rig.settle()
    await iterator.return?.()
    assert.equal((await waiting).done, true)
    rig.broker.putTexts("a")
    assert.deepEqual((await consumer.pull()).map(textOf), ["a"])
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })
})

describe("process", () => {
  test("waits for ever, answers what the handler returns, and acknowledges", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    const length = watch(consumer.process((message) => message.payload?.length))
    await rig.clock.advance(3_600_000)
    assert.equal(length.done, false)
    rig.broker.putTexts("four")
    await rig.settle()
    assert.equal(length.value, 4)
    assert.deepEqual(rig.broker.offsets("done"), [0n])
    assert.equal(consumer.dedupeWindow.alreadyProcessed(0, 0n), true)
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("a handler that fails: no ack, no mark, its error, and the message again after a while", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const failure = new RangeError("no")
    const failed = watch(consumer.process(() => Promise.reject(failure)))
    await rig.settle()
    assert.equal(failed.error, failure)
    assert.equal(consumer.dedupeWindow.alreadyProcessed(0, 0n), false)
    const again = watch(consumer.process(({ deliveries }) => deliveries))
    await rig.clock.advance(100)
    assert.equal(again.value, 2)
    await consumer.shutdown()
  })

  test("with nakOnError false the message comes again when its wait is over", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 }, { nakOnError: false })
    rig.broker.putTexts("a")
    await assert.rejects(
      consumer.process(() => {
        throw new Error("no")
      }),
      /no/,
    )
    const again = watch(consumer.process(({ deliveries }) => deliveries))
    await rig.clock.advance(999)
    assert.equal(again.done, false)
    await rig.clock.advance(1)
    assert.equal(again.value, 2)
    await consumer.shutdown()
  })

  test("one that is in the window is acknowledged and skipped", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    rig.broker.putTexts("a")
    // The handler is done and the ack is lost.
    for (let n = 0; n < 5; n++) rig.broker.settleFailures.push(new ConnectionError("away"))
    const first = watch(consumer.process(textOf))
    await rig.clock.advance(4000)
    assert.ok(first.error instanceof ConnectionError)
    rig.broker.putTexts("b")
    const second = watch(consumer.process(textOf))
    await rig.clock.advance(1000)
    assert.equal(second.value, "b")
    assert.deepEqual(rig.broker.offsets("done"), [0n, 1n])
    assert.equal(consumer.statistics.skipped, 1)
    await consumer.shutdown()
  })

  test("a handler may settle by itself: its call is the one that counts", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const done = watch(consumer.process((message) => message.nak({ delayMs: 5 })))
    await rig.settle()
    assert.equal(done.value, true)
    assert.deepEqual(
      rig.broker.settled.map(({ verdict }) => verdict),
      ["nak"],
    )
    assert.equal(consumer.dedupeWindow.alreadyProcessed(0, 0n), false)
    await consumer.shutdown()
  })

  test("processWithin gives up when no message comes in time, and lets a handler take longer", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    const none = watch(consumer.processWithin(50, textOf))
    await rig.clock.advance(50)
    assert.ok(none.error instanceof TimeoutError)
    const long = Promise.withResolvers<string>()
    const some = watch(consumer.processWithin(50, () => long.promise))
    rig.broker.putTexts("a")
    await rig.clock.advance(500)
    assert.equal(some.done, false)
    long.resolve("late")
    await rig.settle()
    assert.equal(some.value, "late")
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("the queue is deleted under it: NotFoundError, and the next call asks again", async () => {
    const rig = new QueueRig()
    const queue = rig.queue()
    const consumer = await queue.consumer()
    const waiting = watch(consumer.process(textOf))
    await rig.settle()
    await queue.delete()
    await rig.settle()
    assert.ok(waiting.error instanceof NotFoundError)
    await assert.rejects(consumer.process(textOf), NotFoundError)
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("a connection that is lost is waited for", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    for (let n = 0; n < 10; n++) rig.broker.pullFailures.push(new ConnectionError("away"))
    rig.broker.putTexts("a")
    const waiting = watch(consumer.process(textOf))
    await rig.clock.advance(60_000)
    assert.equal(waiting.value, "a")
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })
})
