/** A background producer whose sends settle at the very moment in which others wait for their room, their topic or its end. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { NotFoundError, TimeoutError } from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import type { BackgroundOptions } from "./background-options.ts"
import { BufferBudget } from "./buffer-budget.ts"
import type { Producer } from "./producer.ts"
import type { ProducerOptions } from "./producer-options.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { bytes, failed, numbered, type Rig, rig, run, text } from "./sending-rig.test-support.ts"

function background({ topic }: Rig, options: BackgroundOptions = {}, more: ProducerOptions = {}): Producer {
  return topic.producer({ ...more, background: options })
}

/** Takes so much of the buffer: what surrounds a record counts as 32 bytes. */
function weighing(name: string, bufferBytes: number): Uint8Array {
  return bytes(name.padEnd(bufferBytes - 32, "."))
}

const names = (texts: readonly string[]): string[] => texts.map((each) => each.replace(/\.+$/, ""))

test("room that a failure gives back while waiting sends get their topic lets nobody overtake them", async () => {
  const at = rig({ create: false })
  const told: string[] = []
  const onError = (error: PublishFailedError): void =>
    void told.push(...error.unconfirmed.map(({ payload }) => text(payload)))
  const producer = background(at, { maxBufferBytes: 300, lingerMs: 0, onError })
  const sends = [
    producer.enqueue({ payload: weighing("bad", 200), partition: 9 }),
    producer.enqueue({ payload: weighing("r0", 100) }),
    producer.send(weighing("r1", 200)),
    producer.enqueue({ payload: weighing("r2", 50) }),
  ]
  await run(at.clock, Promise.all(sends))
  await run(at.clock, producer.flush())
  assert.deepEqual(names(at.backend.texts("t")), numbered(3))
  assert.deepEqual(names(told), ["bad"])
  await run(at.clock, producer.shutdown())
})

test("sends that enter while records move to a recreated topic come behind those", async () => {
  const at = rig()
  const told: string[] = []
  const onError = (error: PublishFailedError): void =>
    void told.push(...error.unconfirmed.map(({ payload }) => text(payload)))
  const producer = background(at, { maxBufferBytes: 400, lingerMs: 0, onError })
  await producer.init()
  const sends = [["long", 270] as const, ["r0", 100] as const, ["r1", 200] as const, ["r2", 50] as const].map(
    ([name, bufferBytes]) => producer.enqueue({ payload: weighing(name, bufferBytes) }),
  )
  // The new topic takes no record as long as the first, whose room lets the others in.
  at.backend.delete("t")
  at.backend.create("t")
  at.backend.longestWritableBytes = 200
  await run(at.clock, Promise.all(sends))
  await run(at.clock, producer.shutdown())
  assert.deepEqual(names(at.backend.texts("t")), numbered(3))
  assert.deepEqual(names(told), ["long"])
})

test("a record that the recreated topic's writer refuses fails alone, and is told once", async () => {
  const at = rig()
  const told: string[] = []
  const onError = (error: PublishFailedError): void =>
    void told.push(...error.unconfirmed.map(({ payload }) => text(payload)))
  const producer = background(at, { lingerMs: 0, onError })
  await producer.init()
  const payloads = ["r0", "long".padEnd(60, "."), "r1"]
  await producer.sendBatch(payloads.map(bytes))
  at.backend.delete("t")
  at.backend.create("t")
  at.backend.longestWritableBytes = 50
  await run(at.clock, producer.shutdown())
  assert.deepEqual(at.backend.texts("t"), ["r0", "r1"])
  assert.deepEqual(names(told), ["long"])
})

test("a shutdown whose deadline passes while the topic is being replaced gives back what had to move", async () => {
  for (const hangs of ["request", "describe"] as const) {
    const at = rig({ partitions: 2 })
    const producer = background(at, { lingerMs: 0 })
    await producer.init()
    // One partition hears that its topic is gone, the other hears nothing.
    at.backend.fate = (_, partition) => (partition === 1 && hangs === "request" ? { outcome: "silence" } : {})
    const confirmed = [0, 1].map((partition) => producer.sendAndConfirm(bytes(`c${partition}`), { partition }))
    void producer.send(bytes("r0"), { partition: 0 })
    void producer.send(bytes("r1"), { partition: 1 })
    at.backend.delete("t")
    at.backend.create("t", 2)
    if (hangs === "describe") at.backend.describing = () => new Promise(() => {})
    const started = Promise.allSettled(confirmed)
    const error = await failed(at.clock, producer.shutdown({ timeoutMs: 1000 }))
    assert.ok(error instanceof PublishFailedError, `${hangs}: ${error}`)
    assert.deepEqual(error.unconfirmed.map(({ payload }) => text(payload)).sort(), ["r0", "r1"])
    assert.deepEqual(
      (await run(at.clock, started)).map(({ status }) => status),
      ["rejected", "rejected"],
    )
    await at.clock.advance(60_000)
    assert.equal(at.clock.timers, 0)
  }
})

test("init() ends with the producer when that is shut down while the topic is being replaced", async () => {
  const at = rig()
  const producer = background(at, { lingerMs: 0 })
  await producer.init()
  at.backend.fate = () => ({ outcome: "silence" })
  void producer.send(bytes("r0"))
  await at.clock.advance(1)
  void producer.send(bytes("r1"), { partition: 5 })
  at.backend.delete("t")
  at.backend.create("t")
  await at.clock.advance(10)
  const preparing = failed(at.clock, producer.init())
  await failed(at.clock, producer.shutdown({ timeoutMs: 1000 }))
  await preparing
})

test("what lingers goes out when others wait for its room, flushed or not", async () => {
  for (const flushes of [true, false]) {
    const at = rig()
    const producer = background(at, { maxBufferBytes: 200, lingerMs: 600_000, batchLength: 0 })
    await producer.init()
    const sends = numbered(6).map((name) => producer.send(weighing(name, 100)))
    if (flushes) await run(at.clock, producer.flush())
    await run(at.clock, Promise.all(sends))
    assert.ok(at.clock.monotonicMs() < 1000, `${at.clock.monotonicMs()} ms`)
    await run(at.clock, producer.shutdown())
    assert.deepEqual(names(at.backend.texts("t")), numbered(6))
  }
})

test("a send that enters while another one does is not forgotten", async () => {
  const at = rig()
  const told: string[] = []
  const onError = (error: PublishFailedError): void =>
    void told.push(...error.unconfirmed.map(({ payload }) => text(payload)))
  const producer = background(at, { maxBufferBytes: 1000, lingerMs: 5, onError })
  await producer.init()
  at.backend.longestWritableBytes = 400
  at.backend.fate = () => ({ answerMs: 100 })
  // It fills the buffer, and gives its room back in two pieces.
  void producer.sendAndConfirm(weighing("c0", 400))
  void producer.sendAndConfirm(weighing("c1", 400), { key: "k" })
  await at.clock.advance(20)
  const sends = [
    // The writer refuses it, so that it settles as soon as its lane is done with it: in the midst of the next one's entering.
    producer.sendBatch([weighing("long", 600)], { key: "a" }),
    producer.sendBatch([weighing("r0", 300)], { key: "b" }),
    producer.sendBatch([weighing("r1", 400)], { key: "b" }),
    producer.sendBatch([weighing("r2", 100)], { key: "c" }),
  ]
  await run(at.clock, Promise.all(sends))
  await run(at.clock, producer.flush())
  await run(at.clock, producer.shutdown({ timeoutMs: 5000 }))
  assert.deepEqual(names(at.backend.texts("t")), ["c0", "c1", "r0", "r1", "r2"])
  assert.deepEqual(names(told), ["long"])
})

test("failures that nobody takes hold room for their records alone, not for those that were stored beside them", async () => {
  const at = rig()
  const producer = background(at, { maxBufferBytes: 2000, lingerMs: 0 })
  await producer.init()
  at.backend.longestWritableBytes = 100
  for (let batch = 0; batch < 5; batch++) {
    await run(
      at.clock,
      producer.sendBatch([...Array.from({ length: 9 }, () => weighing("ok", 100)), bytes("x".repeat(101))]),
    )
    await run(at.clock, producer.flush())
  }
  const error = await failed(at.clock, producer.shutdown())
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.unconfirmed.length, 5)
  assert.equal(at.backend.texts("t").length, 45)
})

test("a topic that is gone for a moment only doubles nothing that may be stored", async () => {
  const at = rig()
  at.backend.fate = (append) =>
    append === 0 ? { outcome: "lose" } : append === 1 ? { outcome: "refuse", error: new NotFoundError("not yet") } : {}
  const producer = background(at, { lingerMs: 0 })
  await producer.init()
  void producer.send(bytes("r0"))
  await at.clock.advance(1)
  void producer.send(bytes("r1"))
  const error = await failed(at.clock, producer.shutdown())
  assert.deepEqual(at.backend.texts("t"), numbered(2))
  assert.ok(error instanceof PublishFailedError)
  assert.deepEqual(
    error.unconfirmed.map(({ payload }) => text(payload)),
    ["r0"],
  )
  assert.equal(error.outcome, "unknown")
})

test("at the deadline of a shutdown onError takes all that is left, if it answers at once, and shutdown the rest", async () => {
  for (const answers of ["at once", "with a failure", "never"] as const) {
    const at = rig({ partitions: 2 })
    at.backend.fate = () => ({ outcome: "silence" })
    const told: string[] = []
    const onError = async (error: PublishFailedError): Promise<void> => {
      told.push(...error.unconfirmed.map(({ payload }) => text(payload)))
      if (answers === "with a failure") throw new Error("the handler broke")
      if (answers === "never") await new Promise(() => {})
    }
    const producer = background(at, { lingerMs: 0, onError })
    await producer.init()
    for (const [i, name] of numbered(3).entries()) {
      void producer.sendBatch([bytes(name)], { partition: i % 2 })
      await at.clock.advance(1)
    }
    const error = await failed(at.clock, producer.shutdown({ timeoutMs: 1000 }))
    const kept = error instanceof PublishFailedError ? error.unconfirmed.map(({ payload }) => text(payload)) : []
    assert.deepEqual(told.sort(), answers === "never" ? told.slice(0, 1) : numbered(3))
    if (answers === "at once") assert.ok(error instanceof TimeoutError, String(error))
    else if (answers === "never") assert.deepEqual([...kept, ...told].sort(), numbered(3))
    else assert.deepEqual(kept.sort(), numbered(3))
    assert.equal(at.clock.timers, 0)
  }
})

test("many that wait for room are let in one by one without a walk over those that were", async () => {
  const budget = new BufferBudget(new VirtualClock(), {
    owner: "the buffer",
    option: "maxBufferBytes",
    limitBytes: 1,
    failureMode: "block",
    blockTimeoutMs: 0,
  })
  assert.ok(budget.tryTake(1))
  let entered = 0
  for (let i = 0; i < 300_000; i++) void budget.take(1, () => void entered++)
  const startMs = performance.now()
  for (let i = 0; i < 300_000; i++) budget.release(1)
  assert.equal(entered, 300_000)
  assert.ok(performance.now() - startMs < 3000, `${performance.now() - startMs} ms`)
  assert.equal(budget.usedBytes, 1)
})

test("an enqueued record may be changed once it was accepted, ready or not", async () => {
  for (const mode of ["direct", "background"] as const) {
    const at = rig({ create: false })
    const producer = mode === "direct" ? at.topic.producer() : background(at)
    const reused = bytes("r0")
    const { delivery } = await producer.enqueue({ payload: reused })
    reused.fill(0)
    await run(at.clock, delivery)
    assert.deepEqual(at.backend.texts("t"), ["r0"], mode)
    await run(at.clock, producer.shutdown())
  }
})
