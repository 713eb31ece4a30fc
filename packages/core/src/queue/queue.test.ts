import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, InvalidError, NotFoundError, UnsupportedError } from "@millrace/contract"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { iggyEncryptor } from "../encryption/iggy-encryptor.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { QueueRig, usualSpec, watch } from "./fake-queue.test-support.ts"
import { Queue } from "./queue.ts"
import type { QueueOptions } from "./queue-options.ts"

const topic = { stream: "s", name: "dead", ensure: async (): Promise<void> => {}, batch: async (): Promise<void> => {} }

describe("a queue", () => {
  test("is refused where the backend has none, with what to use instead", () => {
    const { context } = new FakeClient()
    const live = { ...context, manifest: context.session.manifest, assertOpen: () => {} } as never
    assert.throws(
      () => new Queue(live, { stream: "s", topic: "t" }, { name: "q", options: undefined }),
      UnsupportedError,
    )
  })

  test("is made with the defaults of the table, by its first consumer", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    assert.deepEqual(rig.broker.spec, usualSpec)
    assert.deepEqual(usualSpec, {
      ackWaitMs: 30_000,
      backoffMs: [],
      maxAckPending: 1000,
      ackPolicy: "explicit",
      startAt: { kind: "first" },
    })
    assert.equal(consumer.spec, rig.broker.spec)
    await consumer.shutdown()
  })

  test("takes what is given, and no bound where there is none to be", async () => {
    const rig = new QueueRig()
    const options: QueueOptions = {
      ackPolicy: "all",
      ackWaitMs: 5000,
      maxDeliver: 7,
      maxAckPending: false,
      startAt: { kind: "next" },
    }
    await (await rig.consumer(options)).shutdown()
    assert.deepEqual(rig.broker.spec, {
      ackPolicy: "all",
      ackWaitMs: 5000,
      backoffMs: [],
      maxDeliver: 7,
      startAt: { kind: "end" },
    })
    const none = new QueueRig()
    await (await none.consumer({ ackPolicy: "none" })).shutdown()
    assert.equal(none.broker.spec?.maxAckPending, undefined)
  })

  test("that exists keeps what it was made with: what is not given is as it has it, what differs is refused", async () => {
    const rig = new QueueRig()
    await (await rig.consumer({ ackWaitMs: 5000, maxDeliver: 3 })).shutdown()
    const same = await rig.queue().consumer()
    assert.deepEqual([same.spec.ackWaitMs, same.spec.maxDeliver], [5000, 3])
    await same.shutdown()
    await (await rig.queue({ maxDeliver: 3 }).consumer()).shutdown()
    await assert.rejects(rig.queue({ maxDeliver: 4 }).consumer(), InvalidError)
    assert.equal(rig.broker.openSessions, 0)
  })

  test("is not made with createQueue false", async () => {
    const rig = new QueueRig()
    await assert.rejects(rig.queue({ createQueue: false }).consumer(), NotFoundError)
    assert.equal(rig.broker.spec, undefined)
    await (await rig.queue().consumer()).shutdown()
    await (await rig.queue({ createQueue: false }).consumer()).shutdown()
  })

  test("leaves no session behind when a consumer option is wrong", async () => {
    const rig = new QueueRig()
    await assert.rejects(
      rig.queue().consumer({ prefetch: -1 }),
      /queue "q" of topic "s\/t": consumer: option "prefetch" is -1/,
    )
    await assert.rejects(rig.queue({ ackPolicy: "all" }, "other").consumer({ prefetch: 5 }), InvalidError)
    await assert.rejects(rig.queue({ ackPolicy: "all" }, "other").consumer({ nakOnError: false }), InvalidError)
    assert.equal(rig.broker.openSessions, 0)
  })

  test("tells what it is, and is deleted", async () => {
    const rig = new QueueRig()
    const queue = rig.queue()
    await assert.rejects(queue.info(), NotFoundError)
    const consumer = await queue.consumer()
    rig.broker.putTexts("a")
    await consumer.pull()
    const { name, ackPending, spec } = await queue.info()
    assert.deepEqual([name, ackPending, spec], ["q", 1, usualSpec])
    await consumer.shutdown()
    await queue.delete()
    await assert.rejects(queue.delete(), NotFoundError)
  })

  test("without a dead-letter topic has nothing to redrive", async () => {
    const rig = new QueueRig()
    await assert.rejects(rig.queue().redrive(), InvalidError)
    await assert.rejects(rig.queue({ deadLetter: deadLetter(topic) }).redrive(), /a topic handle/)
  })

  test("refuses an encryption that has no room for a dead letter", async () => {
    const rig = new QueueRig()
    const encryptor = iggyEncryptor({ key: new Uint8Array(32) })
    await assert.rejects(rig.queue({ deadLetter: deadLetter(topic) }).consumer({ encryptor }), InvalidError)
    assert.equal(rig.broker.openSessions, 0)
  })
})

describe("options that cannot be", () => {
  const wrong: [QueueOptions, RegExp][] = [
    [{ ackWait: 5 } as never, /unknown option "ackWait"/],
    [{ ackPolicy: "some" } as never, /"ackPolicy" is "some"; it must be one of "none", "all", "explicit"/],
    [{ ackWaitMs: 0 }, /"ackWaitMs" is 0/],
    [{ backoffMs: 5 } as never, /"backoffMs" is 5; it must be an array/],
    [{ backoffMs: [10, -1] }, /"backoffMs\[1\]" is -1/],
    [{ backoffMs: [10], ackWaitMs: 10 }, /exclude each other/],
    [{ maxDeliver: 0 }, /"maxDeliver" is 0/],
    [{ maxDeliver: 1, backoffMs: [1, 2] }, /"maxDeliver" is 1; it must not be below the 2 waits/],
    [{ maxAckPending: 0 }, /"maxAckPending" is 0/],
    [{ startAt: { kind: "middle" } } as never, /startAt.kind is "middle"/],
    [{ createQueue: 1 } as never, /"createQueue" is 1/],
    [{ deadLetter: topic } as never, /it must be what deadLetter\(topic\) gives/],
    [{ ackPolicy: "none", maxDeliver: 3 }, /"maxDeliver" has no meaning with ackPolicy "none"/],
  ]
  for (const [options, message] of wrong) {
    test(String(message), () => {
      assert.throws(
        () => new QueueRig().queue(options),
        (error) => error instanceof InvalidError && message.test(error.message),
      )
    })
  }

  test("names: as of everything else", () => {
    for (const name of ["", "a\nb", "x".repeat(256), 5 as never]) {
      assert.throws(() => new QueueRig().queue({}, name), InvalidError)
    }
  })

  test("of calls", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    const [message] = await consumer.pull()
    const refused: Promise<unknown>[] = [
      consumer.pull({ max: 0 }),
      consumer.pull({ maxWaitMs: -1 }),
      consumer.pull({ many: 1 } as never),
      consumer.process(5 as never),
      consumer.processWithin(-1, () => {}),
      consumer.processWithin(Number.NaN, () => {}),
      consumer.processBatch(0, () => {}),
      consumer.processBatch(1.5, () => {}),
      consumer.run(undefined as never),
      consumer.run(() => {}, { concurrency: 0 }),
      consumer.run(() => {}, { retries: 1 } as never),
      message?.ack({ confirm: "yes" } as never) as Promise<unknown>,
      message?.nak({ delayMs: -1 }) as Promise<unknown>,
      message?.nak({ delay: 1 } as never) as Promise<unknown>,
      message?.terminate(5 as never) as Promise<unknown>,
      consumer.shutdown({ timeoutMs: -1 }),
    ]
    const outcomes = await Promise.allSettled(refused)
    for (const [i, outcome] of outcomes.entries()) {
      assert.ok(outcome.status === "rejected" && outcome.reason instanceof InvalidError, `call ${i}`)
    }
    assert.equal(await message?.ack(), true)
    await consumer.shutdown()
  })
})

test("opening is tried again while the connection is away, as often as the connection says", async () => {
  const rig = new QueueRig()
  const { describe: real } = rig.broker
  let calls = 0
  rig.broker.describe = (...place) => {
    calls++
    return calls === 1 ? Promise.reject(new ConnectionError("away")) : real.apply(rig.broker, place)
  }
  const opening = watch(rig.queue().consumer())
  await rig.clock.advance(1000)
  assert.ok(opening.error instanceof ConnectionError, "the connection of these tests has no retries")
  const second = watch(rig.queue().consumer())
  await rig.clock.advance(1000)
  await second.value?.shutdown()
  assert.equal(second.error, undefined)
})

test("opening ends with the client: ClosedError, and no timer is left", async () => {
  const rig = new QueueRig()
  rig.broker.describe = () => new Promise(() => {})
  const opening = watch(rig.queue().consumer())
  await rig.settle()
  for (const owned of [...rig.client.owned]) await owned.shutdown()
  await rig.settle()
  assert.equal((opening.error as { kind?: string }).kind, "closed")
  assert.deepEqual([rig.clock.timers, rig.client.owned.size], [0, 0])
})
