import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError, type Headers, InvalidError, StorageError } from "@millrace/contract"
import { encryptor } from "../encryption/encryptor.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { deadLetterBlock } from "../handler/dead-letter-record.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { QueueRig, textOf, watch } from "./fake-queue.test-support.ts"
import type { Exhaustion } from "./queue-consumer.ts"
import type { QueueMessage } from "./queue-message.ts"

/** A dead-letter topic that answers as the test says. */
class FakeTopic {
  readonly stream = "s"
  readonly name = "dead"
  readonly sent: OutgoingRecord[] = []
  readonly failures: Error[] = []
  gate: Promise<void> | undefined
  ensure = async (): Promise<void> => {}
  batch = async (records: readonly OutgoingRecord[]): Promise<void> => {
    await this.gate
    const failure = this.failures.shift()
    if (failure !== undefined) throw failure
    this.sent.push(...records)
  }
  block(index = 0): ReturnType<typeof deadLetterBlock> {
    return deadLetterBlock((this.sent[index] as OutgoingRecord).headers as Headers)
  }
}

describe("a message whose deliveries are used up", () => {
  test("with a handler that fails goes to the dead-letter topic at its last delivery, confirmed before it is terminated", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ maxDeliver: 2, deadLetter: deadLetter(topic) })
    const told: Exhaustion[] = []
    consumer.on({ exhausted: (end) => void told.push(end) })
    rig.broker.putTexts("a")
    const gate = Promise.withResolvers<void>()
    topic.gate = gate.promise
    const next: string[] = []
    const running = consumer.run(
      () => {
        throw new RangeError("too far")
      },
      { onError: (_, what) => void next.push(what) },
    )
    await rig.clock.advance(200)
    assert.deepEqual(next, ["retry", "deadLetter"])
    assert.deepEqual(
      rig.broker.settled.map(({ verdict }) => verdict),
      ["nak"],
      "nothing is terminated before the dead letter is stored",
    )
    gate.resolve()
    await rig.settle()
    assert.deepEqual(
      rig.broker.settled.map(({ verdict, reason }) => [verdict, reason]),
      [
        ["nak", undefined],
        ["terminate", "too far"],
      ],
    )
    const block = topic.block()
    assert.deepEqual(
      [block?.queue, block?.attempts, block?.kind, block?.error, block?.offset, block?.content],
      ["q", 2, "RangeError", "too far", 0n, "message"],
    )
    assert.deepEqual(told, [
      { position: { partition: 0, offset: 0n }, deliveries: 2, deadLetter: true, reason: "too far" },
    ])
    await consumer.shutdown()
    await running
    assert.equal(rig.clock.timers, 0)
  })

  test("and that nobody acknowledged in time goes there when it comes once more, and no handler sees that", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ maxDeliver: 1, ackWaitMs: 1000, deadLetter: deadLetter(topic) })
    rig.broker.putTexts("a", "b")
    assert.deepEqual((await consumer.pull()).map(textOf), ["a"])
    const second = watch(consumer.pull({ max: 2 }))
    await rig.settle()
    assert.deepEqual(second.value?.map(textOf), ["b"])
    const none = watch(consumer.pull())
    await rig.clock.advance(1100)
    assert.equal(none.done, false)
    assert.deepEqual(topic.sent.map(textOf as never), ["a", "b"])
    assert.deepEqual(rig.broker.offsets("done"), [0n, 1n])
    assert.match(topic.block()?.error ?? "", /handed out 1 times and not acknowledged/)
    await consumer.shutdown()
  })

  test("is given up and told where there is no dead-letter topic", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({ maxDeliver: 1 })
    const told: boolean[] = []
    consumer.on({ exhausted: (end) => void told.push(end.deadLetter) })
    rig.broker.putTexts("a")
    await assert.rejects(consumer.process(() => Promise.reject(new Error("no"))))
    assert.deepEqual([told, rig.broker.settled.map(({ verdict }) => verdict)], [[false], ["terminate"]])
    assert.equal(consumer.statistics.exhausted, 1)
    await consumer.shutdown()
  })

  test("stays in the queue when its dead letter cannot be stored, and whoever calls next is told", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ maxDeliver: 1, ackWaitMs: 1000, deadLetter: deadLetter(topic) })
    rig.broker.putTexts("a")
    topic.failures.push(new InvalidError("never"))
    const failed = watch(consumer.process(() => Promise.reject(new Error("no"))))
    await rig.settle()
    assert.match(String(failed.error), /no/)
    await assert.rejects(
      consumer.process(() => {}),
      /could not be sent to dead-letter topic/,
    )
    const waiting = watch(consumer.process(() => {}))
    await rig.clock.advance(2000)
    assert.equal(topic.sent.length, 1, "it came again and was stored")
    assert.equal(waiting.done, false)
    await consumer.shutdown()
  })

  test("a run ends with why the dead letter could not be stored", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ maxDeliver: 1, deadLetter: deadLetter(topic) })
    topic.failures.push(new InvalidError("never"))
    rig.broker.putTexts("a")
    const running = watch(consumer.run(() => Promise.reject(new Error("no"))))
    await rig.settle()
    assert.match(String(running.error), /could not be sent to dead-letter topic/)
    await consumer.shutdown()
  })

  test("its wait goes on while the dead letter is on its way", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ maxDeliver: 1, ackWaitMs: 1000, deadLetter: deadLetter(topic) })
    rig.broker.putTexts("a")
    const gate = Promise.withResolvers<void>()
    topic.gate = gate.promise
    const [message] = (await consumer.pull()) as [QueueMessage]
    const terminated = watch(message.terminate("not for us"))
    await rig.clock.advance(5000)
    assert.deepEqual(rig.broker.offsets("leased"), [0n])
    gate.resolve()
    await rig.settle()
    assert.equal(terminated.value, true)
    assert.deepEqual([topic.block()?.error, rig.broker.offsets("done")], ["not for us", [0n]])
    await consumer.shutdown()
    assert.equal(rig.clock.timers, 0)
  })
})

describe("under ackPolicy all", () => {
  test("nothing behind a message is handled before its dead letter is stored: an ack would cover it", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({
      ackPolicy: "all",
      maxDeliver: 1,
      ackWaitMs: 1000,
      deadLetter: deadLetter(topic),
    })
    rig.broker.putTexts("bad", "b", "c")
    const gate = Promise.withResolvers<void>()
    topic.gate = gate.promise
    topic.failures.push(new InvalidError("once"))
    const seen: string[] = []
    const running = watch(
      consumer.run((message) => {
        seen.push(textOf(message))
        if (textOf(message) === "bad") throw new Error("no")
      }),
    )
    await rig.clock.advance(5000)
    assert.deepEqual(seen, ["bad"])
    gate.resolve()
    await rig.settle()
    assert.match(String(running.error), /could not be sent/)
    const again = consumer.run((message) => void seen.push(textOf(message)))
    await rig.clock.advance(3000)
    assert.deepEqual([seen, topic.sent.map(textOf as never)], [["bad", "b", "c"], ["bad"]])
    assert.equal(rig.broker.offsets("done").length, 3)
    await consumer.shutdown()
    await again
    assert.equal(rig.clock.timers, 0)
  })
})

describe("a failure that says retryable false", () => {
  const fatal = (): never => {
    throw Object.assign(new Error("never"), { retryable: false })
  }
  test("goes to the dead-letter topic at once", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ deadLetter: deadLetter(topic) })
    rig.broker.putTexts("a")
    await assert.rejects(consumer.process(fatal))
    assert.deepEqual([topic.sent.length, rig.broker.offsets("done")], [1, [0n]])
    await consumer.shutdown()
  })

  test("is tried again where there is none", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer()
    rig.broker.putTexts("a")
    await assert.rejects(consumer.process(fatal))
    assert.deepEqual(
      rig.broker.settled.map(({ verdict }) => verdict),
      ["nak"],
    )
    await consumer.shutdown()
  })
})

describe("a message that does not decrypt", () => {
  const keys = encryptor({ current: "k", keys: { k: new Uint8Array(32) } })

  test("fails like a handler: naked, then buried as it is stored", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ maxDeliver: 2, deadLetter: deadLetter(topic) }, { encryptor: keys })
    rig.broker.putTexts("a")
    await assert.rejects(
      consumer.process(() => assert.fail("no handler sees it")),
      DecodeError,
    )
    const again = watch(consumer.pull())
    await rig.clock.advance(100)
    assert.ok(again.error instanceof DecodeError)
    await rig.settle()
    assert.deepEqual([topic.block()?.content, topic.sent.map(textOf as never)], ["stored", ["a"]])
    assert.deepEqual(rig.broker.offsets("done"), [0n])
    await consumer.shutdown()
  })

  test("a run goes on behind it, and tells", async () => {
    const rig = new QueueRig()
    const topic = new FakeTopic()
    const consumer = await rig.consumer({ maxDeliver: 1, deadLetter: deadLetter(topic) }, { encryptor: keys })
    rig.broker.putTexts("a", "b")
    const kinds: string[] = []
    const running = consumer.run(() => {}, { onError: ({ kind }, next) => void kinds.push(`${kind} ${next}`) })
    await rig.settle()
    assert.deepEqual(kinds, ["decode deadLetter", "decode deadLetter"])
    await consumer.shutdown()
    await running
  })

  test("is the last item of a batch", async () => {
    const rig = new QueueRig()
    const consumer = await rig.consumer({}, { encryptor: keys })
    rig.broker.putTexts("a", "b")
    const results = await consumer.processBatch(5, textOf)
    assert.equal(results.length, 1)
    assert.equal(results[0]?.status, "rejected")
    await consumer.shutdown()
  })
})

test("a listener that throws fails the next call, and nothing else", async () => {
  const rig = new QueueRig()
  const consumer = await rig.consumer({ maxDeliver: 1 })
  consumer.on({
    exhausted: () => {
      throw new StorageError("the listener")
    },
  })
  rig.broker.putTexts("a", "b")
  await assert.rejects(
    consumer.process(() => Promise.reject(new Error("no"))),
    /no/,
  )
  await assert.rejects(consumer.process(textOf), /listener for "exhausted" failed/)
  assert.equal(await consumer.process(textOf), "b")
  await consumer.shutdown()
})
