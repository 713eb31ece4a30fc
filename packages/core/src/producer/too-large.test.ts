/** One record that is too large fails alone: its neighbours land, in order, whoever finds it too large. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { type MillraceError, RecordTooLargeError } from "@millrace/contract"
import { PublishFailedError } from "./publish-failed.ts"
import { bytes, failed, numbered, rig, run, text } from "./sending-rig.test-support.ts"

test("of sends that share a request, the one that is too large fails alone, with its size and the limit", async () => {
  const { backend, topic, clock } = rig()
  backend.largestPayloadBytes = 20
  const producer = topic.producer()
  await producer.init()
  const large = new Uint8Array(21).fill(0x61)
  const payloads = [...numbered(3).map(bytes), large, ...numbered(3, 3).map(bytes)]
  const outcomes = await run(clock, Promise.allSettled(payloads.map((payload) => producer.send(payload))))
  assert.equal(backend.appends[0]?.count, 7, "they went out together")
  assert.deepEqual(
    outcomes.map(({ status }) => status === "fulfilled"),
    [true, true, true, false, true, true, true],
  )
  const { reason } = outcomes[3] as PromiseRejectedResult
  assert.ok(reason instanceof PublishFailedError)
  assert.equal(reason.retryable, false)
  assert.equal(reason.outcome, "rejected")
  assert.equal(reason.unconfirmed.length, 1)
  const cause = reason.publishCause() as MillraceError
  assert.ok(cause instanceof RecordTooLargeError)
  assert.equal(cause.context.sizeBytes, 21)
  assert.equal(cause.context.limitBytes, 20)
  assert.deepEqual(backend.texts("t"), numbered(6))
  await run(clock, producer.send(bytes("r6")))
  assert.deepEqual(backend.texts("t"), numbered(7))
})

test("of requests in flight together, a record that is too large holds up none of those behind it", async () => {
  const { backend, topic, clock } = rig()
  backend.largestPayloadBytes = 20
  backend.fate = () => ({ delayMs: 5 })
  const producer = topic.producer({ batchLength: 4 })
  await producer.init()
  const payloads = numbered(40).map((one, i) => (i === 5 || i === 23 ? new Uint8Array(21) : bytes(one)))
  const outcomes = await run(clock, Promise.allSettled(payloads.map((payload) => producer.send(payload))))
  assert.deepEqual(
    outcomes.flatMap(({ status }, i) => (status === "rejected" ? [i] : [])),
    [5, 23],
  )
  assert.deepEqual(
    backend.texts("t"),
    numbered(40).filter((_, i) => i !== 5 && i !== 23),
  )
})

for (const who of ["the backend", "the driver's writer"] as const) {
  test(`in a batch of one call its neighbours within the request land; the requests behind it do not go out (${who})`, async () => {
    const { backend, topic, clock } = rig()
    if (who === "the backend") backend.largestPayloadBytes = 20
    else backend.longestWritableBytes = 20
    const producer = topic.producer({ batchLength: 4 })
    const payloads = numbered(12).map((one, i) => (i === 5 ? new Uint8Array(21) : bytes(one)))
    const error = await failed(clock, producer.sendBatch(payloads))
    assert.ok(error instanceof PublishFailedError)
    assert.ok(error.publishCause() instanceof RecordTooLargeError)
    const landed = ["r0", "r1", "r2", "r3", "r4", "r6", "r7"]
    assert.deepEqual(backend.texts("t"), landed)
    assert.equal(
      error.committed.reduce((sum, { count }) => sum + count, 0),
      landed.length,
    )
    assert.deepEqual(
      error.unconfirmed.map(({ payload }) => (payload?.length === 21 ? "too large" : text(payload))),
      ["too large", "r8", "r9", "r10", "r11"],
    )
    await run(clock, topic.batch(error.unconfirmed.slice(1)))
    assert.deepEqual(backend.texts("t"), [...landed, "r8", "r9", "r10", "r11"])
  })
}

test("a record above the client's own limit is refused before anything is sent, and its neighbours land", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer()
  const payloads = [bytes("a"), new Uint8Array(1_001), bytes("b")]
  const outcomes = await run(clock, Promise.allSettled(payloads.map((payload) => producer.send(payload))))
  const { reason } = outcomes[1] as PromiseRejectedResult
  assert.ok(reason instanceof RecordTooLargeError)
  assert.deepEqual([reason.context.sizeBytes, reason.context.limitBytes], [1_001, 1_000])
  assert.deepEqual(backend.texts("t"), ["a", "b"])
  const whole = await failed(clock, producer.sendBatch(payloads))
  assert.ok(whole instanceof RecordTooLargeError)
  assert.match(whole.message, /^record #1: /)
  assert.equal(whole.context.sizeBytes, 1_001)
  assert.deepEqual(backend.texts("t"), ["a", "b"], "of a batch that is refused so, nothing is sent")
})
