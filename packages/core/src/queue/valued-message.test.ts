import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, type Headers, StorageError } from "@millrace/contract"
import { deadLetter } from "../handler/dead-letter.ts"
import { deadLetterBlock } from "../handler/dead-letter-record.ts"
import { TypedDecodeError } from "../typed/typed-decode-error.ts"
import { DeadTopic, Fetching, numbers } from "../typed/typed-rig.test-support.ts"
import { QueueRig, watch } from "./fake-queue.test-support.ts"
import type { Exhaustion } from "./queue-consumer.ts"

const utf8 = new TextEncoder()

describe("a queue of a typed topic", () => {
  test("gives values, and tombstones without one, by every verb", async () => {
    const rig = new QueueRig()
    const consumer = await rig.typed(numbers)
    rig.broker.put([{ payload: utf8.encode("1") }, { payload: null }, { payload: utf8.encode("3") }])
    const [first, second] = await consumer.pull({ max: 2 })
    assert.deepEqual([first?.kind, first?.value, second?.kind, second?.value], ["record", 1, "tombstone", undefined])
    assert.equal((first?.copy() as typeof first)?.value, 1)
    assert.equal(await consumer.process((message) => message.kind === "record" && message.value + 1), 4)
    rig.broker.putTexts("4", "5", "6", "7")
    const results = consumer.processBatch(2, ({ value }) => value)
    await rig.settle()
    assert.deepEqual(await results, [
      { status: "fulfilled", value: 4 },
      { status: "fulfilled", value: 5 },
    ])
    for await (const { value } of consumer) {
      assert.equal(value, 6)
      break
    }
    await consumer.run(({ value }, context) => {
      assert.equal(value, 7)
      context.stop()
    })
    await consumer.shutdown()
  })

  test("tells a record that does not decode to its caller, and hands it out again as one whose handler failed", async () => {
    const rig = new QueueRig()
    const consumer = await rig.typed(numbers, { maxDeliver: 2 })
    const ends: Exhaustion[] = []
    consumer.on({ exhausted: (end) => void ends.push(end) })
    rig.broker.putTexts("1", "true", "3")
    const got = await consumer.pull({ max: 3 })
    assert.deepEqual(
      got.map(({ value }) => value),
      [1],
    )
    await assert.rejects(consumer.pull(), TypedDecodeError)
    assert.deepEqual(
      (await consumer.pull()).map(({ value }) => value),
      [3],
    )
    const again = watch(consumer.process(() => {}))
    await rig.clock.advance(200)
    assert.ok(again.error instanceof TypedDecodeError)
    assert.deepEqual(
      ends.map(({ position, deliveries }) => [position.offset, deliveries]),
      [[1n, 2]],
    )
    await consumer.shutdown()
  })

  test("sends one that does not decode to the dead-letter topic at once, with its bytes, and a run goes on", async () => {
    const rig = new QueueRig()
    const topic = new DeadTopic()
    const consumer = await rig.typed(numbers, { maxDeliver: 5, deadLetter: deadLetter(topic) })
    rig.broker.putTexts("true", "2")
    const told: string[] = []
    await consumer.run(
      ({ value }, context) => {
        told.push(String(value))
        context.stop()
      },
      { onError: (error, next) => void told.push(error.constructor.name, next) },
    )
    assert.deepEqual(told, ["TypedDecodeError", "deadLetter", "2"])
    assert.equal(Buffer.from(topic.sent[0]?.payload ?? []).toString(), "true")
    assert.equal(deadLetterBlock(topic.sent[0]?.headers as Headers)?.content, "message")
    assert.deepEqual(rig.broker.offsets("done"), [0n, 1n])
    await consumer.shutdown()
  })
})

describe("a codec that fetches before it decodes", () => {
  test("is waited for, longer than the wait of its messages, and again when its failure may pass", async () => {
    const rig = new QueueRig()
    const codec = new Fetching()
    codec.failures.push(new ConnectionError("gone"))
    const gate = Promise.withResolvers<void>()
    codec.gate = gate.promise
    const consumer = await rig.typed(codec, { ackWaitMs: 1000 })
    rig.broker.putTexts("1", "2")
    const got = watch(consumer.pull({ max: 2 }))
    await rig.clock.advance(3000)
    assert.equal(got.done, false)
    gate.resolve()
    await rig.clock.advance(1000)
    assert.deepEqual(
      [got.value?.map(({ value, deliveries }) => [value, deliveries]), got.error],
      [
        [
          [1, 1],
          [2, 1],
        ],
        undefined,
      ],
    )
    assert.deepEqual(codec.asked, [2, 2])
    await consumer.shutdown()
  })

  test("and cannot is told to the caller, and the messages come again after a while", async () => {
    const rig = new QueueRig()
    const codec = new Fetching()
    codec.failures.push(new StorageError("refused"))
    const consumer = await rig.typed(codec)
    rig.broker.putTexts("1")
    await assert.rejects(consumer.pull(), StorageError)
    const got = watch(consumer.pull())
    await rig.clock.advance(999)
    assert.equal(got.done, false)
    await rig.clock.advance(10)
    assert.deepEqual(
      got.value?.map(({ value, deliveries }) => [value, deliveries]),
      [[1, 2]],
    )
    await consumer.shutdown()
  })

  test("is not waited for by a shutdown, and what it was to decode goes back", async () => {
    const rig = new QueueRig()
    const codec = new Fetching()
    codec.failures.push(...Array.from({ length: 9 }, () => new ConnectionError("gone")))
    const consumer = await rig.typed(codec)
    rig.broker.putTexts("1")
    const got = watch(consumer.pull())
    await rig.clock.advance(1500)
    const end = watch(consumer.shutdown())
    await rig.settle()
    assert.deepEqual([end.done, end.error, codec.signal?.aborted], [true, undefined, true])
    assert.ok(got.done)
    assert.deepEqual(rig.broker.offsets("ready"), [0n])
    assert.equal(rig.clock.timers, 0)
  })
})
