/** What a background producer promises (seed 000, "Background producers"), over a backend in memory with a virtual clock. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  BufferFullError,
  ClosedError,
  ConnectionError,
  DiskFullError,
  InvalidError,
  RecordTooLargeError,
  TimeoutError,
} from "@millrace/contract"
import type { VirtualClock } from "@millrace/runtime"
import type { Topic } from "../client/topic.ts"
import type { BackgroundOptions } from "./background-options.ts"
import { fakeManifest } from "./fake-backend.test-support.ts"
import type { Producer } from "./producer.ts"
import type { ProducerOptions } from "./producer-options.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { bytes, numbered, rig } from "./sending-rig.test-support.ts"

const texts = (records: readonly { payload: Uint8Array | null }[]): string[] =>
  records.map(({ payload }) => new TextDecoder().decode(payload ?? undefined))

function background(topic: Topic, options: BackgroundOptions = {}, more: ProducerOptions = {}): Producer {
  return topic.producer({ ...more, background: options })
}

async function run<T>(clock: VirtualClock, promise: Promise<T>, mostMs = 600_000): Promise<T> {
  let settled = false
  const watched = promise.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let waited = 0; !settled; waited += 10) {
    assert.ok(waited <= mostMs, `nothing settled within ${mostMs} ms`)
    await clock.advance(10)
  }
  return await watched
}

async function failure(promise: Promise<unknown>): Promise<PublishFailedError> {
  const error = await promise.then(
    () => assert.fail("it settled well"),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof PublishFailedError, String(error))
  return error
}

test("a send settles once it is accepted, without confirmations, and goes out when it lingered", async () => {
  const { clock, backend, topic } = rig()
  const producer = background(topic, { lingerMs: 5 })
  await producer.init()
  assert.deepEqual(await producer.send(bytes("r0")), { confirmations: [] })
  assert.deepEqual(await producer.sendBatch([bytes("r1"), bytes("r2")]), { confirmations: [] })
  await clock.advance(4)
  assert.equal(backend.appends.length, 0)
  await clock.advance(1)
  assert.deepEqual(
    backend.appends.map(({ count }) => count),
    [3],
  )
  await run(clock, producer.shutdown())
  assert.deepEqual(backend.texts("t"), numbered(3))
  assert.equal(clock.timers, 0)
})

test("a flush comes at batchLength sends, at batchBytes, or with lingerMs 0 at the end of the turn", async () => {
  const { clock, backend, topic } = rig()
  const byCount = background(topic, { batchLength: 3, lingerMs: 1000 })
  await byCount.init()
  for (const text of numbered(3)) await byCount.send(bytes(text))
  await clock.advance(0)
  assert.deepEqual(
    backend.appends.map(({ count }) => count),
    [3],
  )
  const byBytes = background(topic, { batchBytes: 1000, lingerMs: 1000 })
  await byBytes.init()
  await byBytes.send(new Uint8Array(450))
  await clock.advance(0)
  assert.equal(backend.texts("t").length, 3)
  await byBytes.send(new Uint8Array(500))
  await clock.advance(0)
  assert.equal(backend.texts("t").length, 5)
  const atOnce = background(topic, { lingerMs: 0 })
  await atOnce.init()
  for (const text of numbered(4)) void atOnce.send(bytes(text))
  await clock.advance(0)
  assert.equal(backend.appends.at(-1)?.count, 4)
  await Promise.all([byCount, byBytes, atOnce].map((producer) => run(clock, producer.shutdown())))
})

test("while requests are under way, sends join those that wait, and maxInFlight holds", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ delayMs: 100 })
  const producer = background(topic, { lingerMs: 1, maxInFlight: 2 })
  await producer.init()
  for (let i = 0; i < 50; i++) {
    await producer.send(bytes(`r${i}`))
    await clock.advance(2)
  }
  await run(clock, producer.flush())
  assert.deepEqual(backend.texts("t"), numbered(50))
  assert.equal(backend.mostInFlight, 2)
  assert.ok(backend.appends.length <= 6, `${backend.appends.length} requests for 50 sends`)
  await producer.shutdown()
})

test("flush and waitUntilAllSends wait for all that was accepted, and send what lingers at once", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ delayMs: 20 })
  const producer = background(topic, { lingerMs: 60_000 })
  for (const text of numbered(10)) void producer.send(bytes(text))
  await run(clock, producer.flush(), 1000)
  assert.deepEqual(backend.texts("t"), numbered(10))
  void producer.send(bytes("r10"))
  await run(clock, producer.waitUntilAllSends(), 1000)
  assert.equal(backend.texts("t").length, 11)
  await producer.shutdown()
  assert.equal(clock.timers, 0)
})

test("sends before the topic is ready wait in order, and their bytes may change once they were accepted", async () => {
  const { clock, backend, topic } = rig({ create: false })
  const producer = background(topic, {}, { partitions: 3, routing: { kind: "key", key: "k" } })
  const reused = new Uint8Array(2)
  for (let i = 0; i < 10; i++) {
    reused.set(bytes(`r${i}`))
    await producer.send(reused)
  }
  await run(clock, producer.shutdown())
  const stored = [0, 1, 2].flatMap((partition) => backend.texts("t", partition))
  assert.deepEqual(stored, numbered(10))
})

test("a failed batch goes to onError with all of its records and ids, one failure at a time", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = (append) => (append < 2 ? { outcome: "refuse", error: new DiskFullError("no room") } : {})
  const seen: string[][] = []
  let running = 0
  const producer = background(
    topic,
    {
      lingerMs: 0,
      onError: async (error) => {
        assert.equal(++running, 1)
        assert.ok(error.unconfirmed.every(({ id }) => id !== undefined))
        assert.equal(error.publishCause() instanceof DiskFullError, true)
        await Promise.resolve()
        seen.push(texts(error.unconfirmed))
        running--
      },
    },
    { retries: 0 },
  )
  await producer.init()
  for (const batch of [0, 2, 4]) {
    for (const text of numbered(2, batch)) void producer.send(bytes(text))
    await clock.advance(0)
  }
  await run(clock, producer.shutdown())
  assert.deepEqual(seen, [numbered(2), numbered(2, 2)])
  assert.deepEqual(backend.texts("t"), numbered(2, 4))
})

test("without onError failures are kept, and shutdown rejects with all of their records in one", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = (append) => (append === 1 ? {} : { outcome: "refuse", error: new DiskFullError(`no room ${append}`) })
  const producer = background(topic, { lingerMs: 0 }, { retries: 0 })
  await producer.init()
  for (const text of numbered(3)) {
    void producer.send(bytes(text))
    await clock.advance(0)
  }
  const error = await failure(run(clock, producer.shutdown()))
  assert.deepEqual(texts(error.unconfirmed), ["r0", "r2"])
  assert.equal(error.failures?.length, 2)
  assert.match(error.publishCause().message, /no room 0/)
  await failure(producer.shutdown())
  assert.equal(clock.timers, 0)
})

test("what onError throws keeps the failure for shutdown, which tells both", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ outcome: "refuse", error: new DiskFullError("no room") })
  const onError = (): never => {
    throw new Error("the handler broke")
  }
  const producer = background(topic, { onError }, { retries: 0 })
  await producer.send(bytes("r0"))
  const error = await failure(run(clock, producer.shutdown()))
  assert.deepEqual(texts(error.unconfirmed), ["r0"])
  assert.match(error.message, /no room.*onError failed: the handler broke/)
})

test("a send and a shutdown from inside onError do not hang", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = (append) => (append === 0 ? { outcome: "refuse", error: new DiskFullError("no room") } : {})
  let ended = false
  const producer: Producer = background(
    topic,
    {
      maxBufferBytes: 100,
      onError: async (error) => {
        for (const { payload } of error.unconfirmed) await producer.send(payload)
        await producer.shutdown()
        ended = true
      },
    },
    { retries: 0 },
  )
  await producer.send(bytes("r0"))
  for (let waited = 0; !ended; waited++) {
    assert.ok(waited < 100)
    await clock.advance(10)
  }
  await run(clock, producer.shutdown())
  assert.deepEqual(backend.texts("t"), ["r0"])
})

test("a shutdown from inside onError does not wait for one from outside that waits for onError", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ outcome: "refuse", error: new DiskFullError("no room") })
  const producer: Producer = background(topic, { onError: () => producer.shutdown() }, { retries: 0 })
  await producer.send(bytes("r0"))
  const start = clock.monotonicMs()
  await run(clock, producer.shutdown())
  assert.ok(clock.monotonicMs() - start < 1000)
})

test("an onError that never settles does not keep shutdown past its deadline", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ outcome: "refuse", error: new DiskFullError("no room") })
  const producer = background(topic, { onError: () => new Promise(() => {}) }, { retries: 0 })
  await producer.send(bytes("r0"))
  await assert.rejects(
    run(clock, producer.shutdown({ timeoutMs: 2000 })),
    (error) => error instanceof TimeoutError && /onError has not returned 2000 ms/.test(error.message),
  )
})

test("the first resend goes at once, later ones after equal waits, also after failures that are not temporary", async () => {
  const { clock, backend, topic } = rig()
  const times: number[] = []
  const start = clock.monotonicMs()
  backend.fate = (append) => {
    times.push(clock.monotonicMs() - start)
    return append < 3 ? { outcome: "refuse", error: new DiskFullError("no room", { retryable: false }) } : {}
  }
  const producer = background(topic, { lingerMs: 0 }, { retries: 3, retryBackoffMs: 100 })
  await producer.init()
  void producer.send(bytes("r0"))
  await run(clock, producer.shutdown())
  assert.deepEqual(times, [0, 0, 100, 200])
  assert.deepEqual(backend.texts("t"), ["r0"])
})

test("a lost confirmation is resent where the backend recognises it, and told as unknown where it does not", async () => {
  for (const dedup of ["sequence", "none"] as const) {
    const inFlight = dedup === "none" ? { offsets: 1, stored: 1 } : { offsets: 5, stored: 5 }
    const identityScope = dedup === "none" ? "none" : "producer"
    const { clock, backend, topic } = rig({ manifest: fakeManifest({ dedup, inFlight, identityScope }) })
    backend.fate = (append) => (append === 0 ? { outcome: "lose" } : {})
    const producer = background(topic, { lingerMs: 0 })
    await producer.init()
    void producer.send(bytes("r0"))
    const ending = run(clock, producer.shutdown())
    if (dedup === "sequence") await ending
    else assert.equal((await failure(ending)).outcome, "unknown")
    assert.deepEqual(backend.texts("t"), ["r0"])
  }
})

test("a full buffer makes sends wait in their order, and they enter as room becomes free", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ delayMs: 50 })
  const producer = background(topic, { maxBufferBytes: 1100, lingerMs: 0 })
  await producer.init()
  const entered: number[] = []
  const sends = numbered(5).map(async (text, i) => {
    const payload = new Uint8Array(i === 3 ? 10 : 500)
    payload.set(bytes(text))
    await producer.send(payload)
    entered.push(i)
  })
  await clock.advance(1)
  assert.deepEqual(entered, [0, 1])
  await run(clock, Promise.all(sends))
  assert.deepEqual(entered, [0, 1, 2, 3, 4])
  await run(clock, producer.shutdown())
  assert.deepEqual(
    backend.texts("t").map((text) => text.slice(0, 2)),
    numbered(5),
  )
})

test("failImmediately and blockWithTimeout refuse with the sizes, and nothing of it is sent", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ delayMs: 1000 })
  const failing = background(topic, { maxBufferBytes: 600, failureMode: "failImmediately" })
  await failing.sendBatch([new Uint8Array(500)])
  await assert.rejects(
    failing.send(new Uint8Array(500)),
    (error) =>
      error instanceof BufferFullError &&
      error.retryable &&
      error.outcome === "rejected" &&
      /532 bytes: 532 of 600 \(maxBufferBytes\)/.test(error.message),
  )
  const waiting = background(topic, { maxBufferBytes: 600, failureMode: "blockWithTimeout", blockTimeoutMs: 100 })
  await waiting.send(new Uint8Array(500))
  await assert.rejects(
    run(clock, waiting.send(new Uint8Array(500)), 200),
    (error) => error instanceof TimeoutError && error.outcome === "rejected" && /100 ms/.test(error.message),
  )
  await run(clock, Promise.all([failing.shutdown(), waiting.shutdown()]))
  assert.equal(backend.texts("t").length, 2)
  assert.equal(clock.timers, 0)
})

test("a send above the whole buffer is refused in every failure mode, as one that no retry helps", async () => {
  for (const failureMode of ["block", "blockWithTimeout", "failImmediately"] as const) {
    const { topic } = rig()
    const more = failureMode === "blockWithTimeout" ? { blockTimeoutMs: 10 } : {}
    const producer = background(topic, { maxBufferBytes: 100, failureMode, ...more })
    await assert.rejects(
      producer.send(new Uint8Array(200)),
      (error) => error instanceof BufferFullError && !error.retryable && /maxBufferBytes/.test(error.message),
    )
    await producer.shutdown()
  }
})

test("failures that nobody takes hold no more than the buffer's size, then sends are refused, and all are told at the end", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ outcome: "refuse", error: new DiskFullError("no room") })
  const producer = background(topic, { maxBufferBytes: 1200, lingerMs: 0 }, { retries: 0 })
  await producer.init()
  let taken = 0
  for (let i = 0; i < 10; i++) {
    const sent = producer.send(new Uint8Array(500)).then(
      () => taken++,
      (error) => assert.ok(error instanceof BufferFullError && /shutdown\(\)/.test(error.message)),
    )
    await run(clock, sent)
    await clock.advance(1)
  }
  assert.ok(taken < 10)
  assert.equal((await failure(run(clock, producer.shutdown()))).unconfirmed.length, taken)
})

test("sendAndConfirm tells where the record is and what it weighs", async () => {
  const { clock, backend, topic } = rig({ partitions: 2 })
  const producer = background(topic)
  const deliveries = await run(
    clock,
    Promise.all([
      producer.sendAndConfirm(bytes("abc"), { partition: 1 }),
      producer.sendAndConfirm(null, { partition: 1 }),
      producer.sendAndConfirm(bytes("de"), { key: "key" }),
    ]),
  )
  assert.deepEqual(
    deliveries.map(({ partition, offset, payloadBytes, keyBytes }) => [partition, offset, payloadBytes, keyBytes]),
    [
      [1, 0n, 3, 0],
      [1, 1n, 0, 0],
      [deliveries[2]?.partition, deliveries[2]?.offset, 2, 3],
    ],
  )
  backend.fate = () => ({ outcome: "refuse", error: new DiskFullError("no room", { retryable: false }) })
  const error = await failure(run(clock, producer.sendAndConfirm(bytes("x"))))
  assert.deepEqual(texts(error.unconfirmed), ["x"])
  // The one who awaited it has heard of it: it is told nowhere else.
  await run(clock, producer.shutdown())
})

test("an enqueued record has a handle; a failure that nobody looks at goes where background failures go", async () => {
  const { clock, backend, topic } = rig()
  const heard: string[][] = []
  const onError = (error: PublishFailedError): void => void heard.push(texts(error.unconfirmed))
  const producer = background(topic, { onError, lingerMs: 0 }, { retries: 0 })
  const handle = await producer.enqueue({ payload: bytes("r0"), key: "k" })
  assert.equal((await run(clock, handle.delivery)).offset, 0n)
  backend.fate = () => ({ outcome: "refuse", error: new DiskFullError("no room") })
  const unseen = await producer.enqueue({ payload: bytes("r1") })
  await run(clock, producer.flush())
  await clock.advance(0)
  assert.deepEqual(heard, [["r1"]])
  assert.deepEqual(texts((await failure(unseen.delivery)).unconfirmed), ["r1"])
  await producer.shutdown()
})

test("a bad record is refused by its own send, or alone within an accepted batch, and its neighbours land", async () => {
  const manifest = fakeManifest({}, { payloadBytes: 5000, batchBytes: 1000 })
  const { clock, backend, topic } = rig({ manifest })
  const producer = background(topic, { lingerMs: 0 })
  await producer.init()
  await assert.rejects(producer.send(new Uint8Array(5001)), RecordTooLargeError)
  backend.largestPayloadBytes = 100
  await producer.sendBatch([bytes("r0"), new Uint8Array(200), bytes("r1")])
  const error = await failure(run(clock, producer.shutdown()))
  assert.ok(error.publishCause() instanceof RecordTooLargeError)
  assert.equal(error.unconfirmed.length, 1)
  assert.deepEqual(backend.texts("t"), ["r0", "r1"])
})

test("a partition that the topic does not have fails its own record alone", async () => {
  const { clock, backend, topic } = rig()
  const seen: PublishFailedError[] = []
  const producer = background(topic, { onError: (error) => void seen.push(error), lingerMs: 0 })
  void producer.send(bytes("r0"))
  void producer.send(bytes("bad"), { partition: 9 })
  void producer.send(bytes("r1"))
  await run(clock, producer.shutdown())
  assert.deepEqual(backend.texts("t"), ["r0", "r1"])
  assert.deepEqual(
    seen.flatMap(({ unconfirmed }) => texts(unconfirmed)),
    ["bad"],
  )
  assert.match(seen[0]?.message ?? "", /partition 9 .*1 partition \(0\)/)
})

test("ordered sharding keeps the order of a topic's sends, balanced sharding uses every lane", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = (append) => ({ delayMs: append % 3 === 0 ? 30 : 1 })
  const ordered = background(topic, { shards: 4, lingerMs: 0 })
  for (const text of numbered(30)) {
    void ordered.send(bytes(text))
    await clock.advance(1)
  }
  await run(clock, ordered.shutdown())
  assert.deepEqual(backend.texts("t"), numbered(30))
  const before = backend.identifies
  const balanced = background(topic, { shards: 3, sharding: "balanced", lingerMs: 0 })
  for (const text of numbered(30)) void balanced.send(bytes(text))
  await run(clock, balanced.shutdown())
  assert.equal(backend.identifies - before, 3)
  assert.deepEqual(backend.texts("t").slice(30).sort(), numbered(30).sort())
})

test("shutdown tells at its deadline how many and which records were not delivered, and refuses later sends", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ outcome: "silence" })
  const producer = background(topic)
  for (const text of numbered(5)) void producer.send(bytes(text))
  const ending = producer.shutdown({ timeoutMs: 3000 })
  await assert.rejects(producer.send(bytes("late")), ClosedError)
  const error = await failure(run(clock, ending, 4000))
  assert.equal(error.outcome, "unknown")
  assert.match(error.message, /5 records of 5 sends had no confirmation 3000 ms/)
  assert.deepEqual(texts(error.unconfirmed), numbered(5))
  assert.equal(clock.timers, 0)
})

test("sends that wait for room when the deadline passes are refused, and told to be rejected", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ outcome: "silence" })
  const told: PublishFailedError[] = []
  const onError = (error: PublishFailedError): void => void told.push(error)
  const producer = background(topic, { maxBufferBytes: 600, lingerMs: 60_000, onError })
  await producer.send(new Uint8Array(500))
  const blocked = producer.send(new Uint8Array(500))
  const ending = producer.shutdown({ timeoutMs: 1000 })
  ending.catch(() => {})
  await assert.rejects(run(clock, blocked), (error) => error instanceof TimeoutError && error.outcome === "rejected")
  await assert.rejects(
    run(clock, ending),
    (error) => error instanceof TimeoutError && error.context.unconfirmedRecords === 1,
  )
  assert.equal(told.length, 1)
  assert.equal(clock.timers, 0)
})

test("a flush under constant pressure waits for what was called before it, and no longer", async () => {
  const { clock, backend, topic } = rig()
  backend.fate = () => ({ delayMs: 10 })
  const producer = background(topic, { maxBufferBytes: 600, lingerMs: 0 })
  await producer.init()
  let stop = false
  const press = async (): Promise<void> => {
    while (!stop) await producer.send(new Uint8Array(300))
  }
  const pressing = [press(), press(), press()]
  await clock.advance(1)
  await run(clock, producer.flush(), 1000)
  stop = true
  await run(clock, Promise.all(pressing))
  await run(clock, producer.shutdown())
})

test("a backend that is down from the start loses nothing that was accepted once it comes back", async () => {
  const { clock, backend, topic } = rig()
  let isDown = true
  backend.failDescribe = () => (isDown ? new ConnectionError("nobody is there") : undefined)
  const producer = background(topic, {}, { retries: 1000, retryBackoffMs: 100 })
  for (const text of numbered(20)) await producer.send(bytes(text))
  await clock.advance(5000)
  isDown = false
  await run(clock, producer.shutdown({ timeoutMs: 60_000 }), 70_000)
  assert.deepEqual(backend.texts("t"), numbered(20))
})

test("the client's close shuts a background producer down, with what it had accepted", async () => {
  const { clock, backend, client, topic } = rig()
  const producer = background(topic, { lingerMs: 60_000 })
  for (const text of numbered(3)) await producer.send(bytes(text))
  await run(clock, client.close())
  assert.deepEqual(backend.texts("t"), numbered(3))
  await assert.rejects(producer.send(bytes("late")), ClosedError)
})

test("statistics count what was submitted, confirmed and failed", async () => {
  const { clock, backend, topic } = rig()
  const producer = background(topic, { lingerMs: 0, onError: () => {} }, { retries: 0 })
  await producer.init()
  await producer.sendBatch([bytes("a"), bytes("bc")])
  await producer.flush()
  backend.fate = () => ({ outcome: "refuse", error: new DiskFullError("no room") })
  await producer.send(bytes("d"))
  await run(clock, producer.shutdown())
  const { submittedRecords, submittedPayloadBytes, confirmedRecords, confirmedPayloadBytes, failedCalls } =
    producer.statistics
  assert.deepEqual(
    { submittedRecords, submittedPayloadBytes, confirmedRecords, confirmedPayloadBytes, failedCalls },
    { submittedRecords: 3, submittedPayloadBytes: 4, confirmedRecords: 2, confirmedPayloadBytes: 3, failedCalls: 1 },
  )
})

test("options out of range or in contradiction are refused by name", () => {
  const { topic } = rig()
  const bad: readonly (readonly [options: unknown, message: RegExp])[] = [
    [{ shards: 0 }, /option "shards" is 0; it must be a whole number from 1/],
    [{ lingerMs: -1 }, /option "lingerMs" is -1/],
    [{ maxBufferBytes: 1.5 }, /option "maxBufferBytes" is 1.5/],
    [{ failureMode: "wait" }, /option "failureMode" is "wait"; it must be one of "block"/],
    [{ failureMode: "blockWithTimeout" }, /needs blockTimeoutMs/],
    [{ blockTimeoutMs: 5 }, /blockTimeoutMs is for failureMode "blockWithTimeout"/],
    [{ onError: 7 }, /option "onError" is 7; it must be a function/],
    [{ shard: 1 }, /unknown option "shard"/],
    [false, /must be an object/],
    ["yes", /must be an object/],
  ]
  for (const [options, message] of bad) {
    assert.throws(
      () => topic.producer({ background: options as BackgroundOptions }),
      (error) => error instanceof InvalidError && message.test(error.message),
    )
  }
})
