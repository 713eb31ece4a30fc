import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CancelledError, InvalidError, NotFoundError, TimeoutError } from "@millrace/contract"
import { QueueRig, textOf, watch } from "./fake-queue.test-support.ts"

describe("run", () => {
  test("handles as many at a time as it may, acknowledges each, and takes no more than it can handle", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({}, { prefetch: 0 })
    rig.broker.putTexts(..."abcdefgh")
    let running = 0
    let most = 0
    const handled: string[] = []
    const ended = consumer.run(
      async (message) => {
        most = Math.max(most, ++running)
        await new Promise<void>((resolve) => void rig.clock.setTimer(10, resolve))
        running--
        handled.push(textOf(message))
      },
      { concurrency: 3 },
    )
    await rig.settle()
    assert.equal(rig.broker.offsets("leased").length, 3)
    await rig.clock.advance(30)
    assert.deepEqual([most, handled], [3, [..."abcdefgh"]])
    await consumer.shutdown()
    await ended
    assert.deepEqual([rig.broker.offsets("done").length, rig.clock.timers], [8, 0])
  })

  test("handlers that answer at once are handled at once", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts(...Array.from({ length: 500 }, (_, n) => String(n)))
    const handled: string[] = []
    const ended = consumer.run((message) => void handled.push(textOf(message)))
    await rig.settle()
    assert.equal(handled.length, 500)
    assert.ok(rig.broker.requests < 30, `${rig.broker.requests} requests`)
    await consumer.shutdown()
    await ended
  })

  test("what fails comes again after delays that grow, and is told", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const told: string[] = []
    const ended = consumer.run(
      ({ deliveries }) => {
        if (deliveries < 5) throw new Error(`attempt ${deliveries}`)
      },
      {
        backoffMs: 100,
        maxBackoffMs: 400,
        onError: ({ kind, message }, next) => void told.push(`${kind} ${message.slice(-9)} ${next}`),
      },
    )
    await rig.clock.advance(2000)
    assert.deepEqual(
      told,
      [1, 2, 3, 4].map((n) => `handler attempt ${n} retry`),
    )
    const delays = rig.broker.settled.filter(({ verdict }) => verdict === "nak").map(({ delayMs }) => delayMs as number)
    assert.ok(
      delays.every((delay, i) => delay >= 50 * 2 ** Math.min(i, 2) && delay <= 100 * 2 ** Math.min(i, 2)),
      `${delays}`,
    )
    assert.deepEqual(rig.broker.offsets("done"), [0n])
    await consumer.shutdown()
    await ended
  })

  test("a queue with waits of its own has those as delays", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ backoffMs: [1000, 7000] })
    rig.broker.putTexts("a")
    const ended = consumer.run(({ deliveries }) => {
      if (deliveries < 4) throw new Error("no")
    })
    await rig.clock.advance(20_000)
    const delays = rig.broker.settled.filter(({ verdict }) => verdict === "nak").map(({ delayMs }) => delayMs)
    assert.deepEqual(delays, [1000, 7000, 7000])
    await consumer.shutdown()
    await ended
  })

  test("ends with its signal once the running handlers are done", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b")
    const controller = new AbortController()
    const running = watch(
      consumer.run(() => new Promise<void>((resolve) => void rig.clock.setTimer(50, resolve)), {
        signal: controller.signal,
      }),
    )
    await rig.settle()
    controller.abort()
    await rig.settle()
    assert.equal(running.done, false)
    await rig.clock.advance(50)
    assert.ok(running.error instanceof CancelledError)
    assert.deepEqual(rig.broker.offsets("done"), [0n])
    assert.deepEqual((await consumer.pull()).map(textOf), ["b"])
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("ends with the consumer's signal as well, as every call that waits", async () => {
    const rig = new QueueRig()
    const signal = new AbortController()
    const consumer = await rig.consumer({}, { signal: signal.signal })
    rig.broker.putTexts("a")
    const working = Promise.withResolvers<void>()
    const running = watch(consumer.run(() => working.promise))
    await rig.settle()
    signal.abort()
    await rig.settle()
    assert.equal(running.done, false)
    working.resolve()
    await rig.settle()
    assert.ok(running.error instanceof CancelledError)
    assert.deepEqual(rig.broker.offsets("done"), [0n])
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("does not wait for handlers that hang beyond drainTimeoutMs, and tells them", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const controller = new AbortController()
    let aborted = false
    const hang = Promise.withResolvers<void>()
    const running = watch(
      consumer.run(
        (_, { signal }) => {
          signal.addEventListener("abort", () => {
            aborted = true
          })
          return hang.promise
        },
        { signal: controller.signal, drainTimeoutMs: 500 },
      ),
    )
    await rig.settle()
    controller.abort()
    await rig.clock.advance(500)
    assert.deepEqual([running.done, aborted], [true, true])
    hang.resolve()
    await rig.settle()
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })

  test("a handler may stop it, and may shut the consumer down", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a", "b")
    const stopped = watch(consumer.run((_, { stop }) => void stop, {}))
    await rig.settle()
    assert.equal(stopped.done, false)
    await consumer.shutdown()
    const other = await rig.consumer()
    rig.broker.putTexts("c", "d")
    const seen: string[] = []
    await other.run((message, context) => {
      seen.push(textOf(message))
      context.stop()
    })
    const ended = watch(
      other.run(async (message) => {
        seen.push(textOf(message))
        await other.shutdown()
      }),
    )
    await rig.settle()
    assert.deepEqual([seen, ended.done, ended.error], [["c", "d"], true, undefined])
    assert.deepEqual(rig.broker.offsets("done").length, 4)
    assert.equal(rig.clock.timers, 0)
  })

  test("what onError throws ends it", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const mine = new Error("mine")
    const running = watch(
      consumer.run(() => Promise.reject(new Error("no")), {
        onError: () => {
          throw mine
        },
      }),
    )
    await rig.settle()
    assert.equal(running.error, mine)
    await consumer.shutdown()
  })

  test("so does what an async onError rejects with", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const mine = new Error("mine")
    const onError = (): Promise<never> => Promise.reject(mine)
    const running = watch(consumer.run(() => Promise.reject(new Error("no")), { onError }))
    await rig.settle()
    assert.equal(running.error, mine)
    await consumer.shutdown()
  })

  test("the queue is deleted under it: NotFoundError", async () => {
    const rig = new QueueRig()
    const queue = rig.queue()
    const consumer = await queue.consumer()
    const running = watch(consumer.run(() => {}))
    await rig.settle()
    await queue.delete()
    await rig.settle()
    assert.ok(running.error instanceof NotFoundError)
    await consumer.shutdown()
  })

  test("under all there is one handler at a time", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all" })
    await assert.rejects(
      consumer.run(() => {}, { concurrency: 2 }),
      InvalidError,
    )
    await consumer.shutdown()
  })
})

describe("shutdown", () => {
  test("gives back what was not handed out, waits for handlers, and sends their acks", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({}, { prefetch: 16 })
    rig.broker.putTexts(...Array.from({ length: 30 }, (_, n) => String(n)))
    let slow = false
    const running = consumer.run(() =>
      slow ? new Promise<void>((resolve) => void rig.clock.setTimer(100, resolve)) : undefined,
    )
    slow = true
    await rig.settle()
    const before = rig.broker.offsets("leased").length
    const ending = watch(consumer.shutdown())
    await rig.settle()
    assert.deepEqual([ending.done, rig.broker.offsets("leased").length], [false, 1], `${before} before`)
    await rig.clock.advance(100)
    assert.equal(ending.done, true)
    await running
    assert.equal(rig.broker.offsets("leased").length, 0)
    assert.equal(rig.clock.timers, 0)
  })

  test("does not wait for ever: TimeoutError, and everything is released even so", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackWaitMs: 1000 })
    rig.broker.putTexts("a")
    const hang = Promise.withResolvers<void>()
    const processing = watch(consumer.process(() => hang.promise))
    await rig.settle()
    const ending = watch(consumer.shutdown({ timeoutMs: 300 }))
    await rig.clock.advance(300)
    assert.ok(ending.error instanceof TimeoutError)
    assert.deepEqual([rig.broker.openSessions, rig.client.owned.size, rig.clock.timers], [0, 0, 0])
    hang.resolve()
    await rig.settle()
    assert.equal((processing.error as { kind?: string }).kind, "closed")
    assert.equal(rig.clock.timers, 0)
  })

  test("that is out of time ends a run too, also one that had failed and was waiting for its handler", async () => {
    const rig = new QueueRig()
    const queue = rig.queue()
    const consumer = await queue.consumer()
    rig.broker.putTexts("a")
    const hang = Promise.withResolvers<void>()
    const failed = watch(consumer.run(() => hang.promise, { concurrency: 3 }))
    const other = await queue.consumer()
    rig.broker.putTexts("b")
    await rig.settle()
    const hanging = watch(other.run(() => hang.promise))
    await rig.settle()
    await queue.delete()
    await rig.settle()
    const endings = [consumer, other].map((one) => watch(one.shutdown({ timeoutMs: 1000 })))
    await rig.clock.advance(1000)
    assert.deepEqual([failed.done, hanging.done, rig.clock.timers], [true, true, 0])
    assert.ok(failed.error instanceof NotFoundError)
    assert.ok(endings.some(({ error }) => error instanceof TimeoutError))
    hang.resolve()
    await rig.settle()
    assert.equal(rig.clock.timers, 0)
  })

  for (const verb of ["process", "processBatch", "run"] as const) {
    test(`by the client's close does not wait for the handler of ${verb} that awaits it`, async () => {
      const rig = new QueueRig()
      const consumer = await rig.consumer()
      rig.broker.putTexts("a")
      const close = async (): Promise<void> => {
        await Promise.all([...rig.client.owned].map((owned) => owned.shutdown({ timeoutMs: 30_000 })))
      }
      const working = watch<unknown>(verb === "processBatch" ? consumer.processBatch(3, close) : consumer[verb](close))
      await rig.settle()
      assert.deepEqual([working.done, working.error], [true, undefined])
      assert.deepEqual(rig.broker.offsets("done"), [0n])
      assert.deepEqual([rig.broker.openSessions, rig.client.owned.size, rig.clock.timers], [0, 0, 0])
    })
  }

  test("that is out of time leaves no timer of a batch whose acks wait for its end", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ ackPolicy: "all", ackWaitMs: 30_000 })
    rig.broker.putTexts("a", "b", "c")
    const hang = Promise.withResolvers<void>()
    let calls = 0
    const batch = watch(consumer.processBatch(3, () => (++calls === 2 ? hang.promise : undefined)))
    await rig.settle()
    const ending = watch(consumer.shutdown({ timeoutMs: 100 }))
    await rig.clock.advance(100)
    assert.deepEqual([ending.error instanceof TimeoutError, rig.clock.timers], [true, 0])
    hang.resolve()
    await rig.settle()
    assert.deepEqual([batch.done, rig.clock.timers], [true, 0])
  })
})
