/** Trouble at the edges of a spool: ends amid a recovery, calls from inside `onError`, groups that fail half way. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  BufferFullError,
  ClosedError,
  ConnectionError,
  DiskFullError,
  type MillraceError,
  StorageError,
  TimeoutError,
} from "@millrace/contract"
import type { PublishFailedError } from "../producer/publish-failed.ts"
import type { DiskProcess } from "./fake-disk.test-support.ts"
import { bytes, SpoolRig } from "./spool-rig.test-support.ts"

test("a shutdown while a recovery waits for a backend that is down says how many records stay", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "lose" })
  const first = rig.live()
  await rig.run(first.producer.send(bytes("a")))
  await rig.until(() => rig.backend.appends.length > 0)
  first.process.isDead = true
  await rig.clock.advance(10)
  rig.describeError = new ConnectionError("nobody there")
  const second = rig.live()
  await rig.run(second.producer.init())
  await assert.rejects(rig.run(second.producer.shutdown({ timeoutMs: 1_000 })), (error: TimeoutError) => {
    assert.ok(error instanceof TimeoutError, String(error))
    assert.equal(error.context.spooledRecords, 1)
    return true
  })
  rig.describeError = undefined
  rig.backend.fate = () => ({})
  const third = rig.live()
  await rig.run(third.producer.flush())
  await rig.run(third.producer.shutdown())
  assert.deepEqual(rig.backend.texts("t"), ["a"])
})

test("shutdown from inside onError does not wait for its own deadline", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 5
  const startedMs = rig.clock.monotonicMs()
  const ended = Promise.withResolvers<void>()
  const { producer } = rig.live({
    onError: async () => {
      await producer.shutdown()
      ended.resolve()
    },
  })
  await rig.run(Promise.all([producer.send(bytes("too large")), producer.send(bytes("b"))]))
  await rig.until(() => rig.backend.texts("t").length === 1)
  await rig.run(ended.promise)
  assert.ok(rig.clock.monotonicMs() - startedMs < 5_000, `${rig.clock.monotonicMs() - startedMs} ms`)
})

test("flush inside onError settles when all but what it is told of is confirmed", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 5
  let flushed = 0
  const { producer } = rig.live({
    onError: async () => {
      await producer.send(bytes("b"))
      await producer.flush()
      assert.deepEqual(rig.backend.texts("t"), ["b"])
      flushed++
    },
  })
  await rig.run(producer.send(bytes("too large")))
  await rig.run(producer.flush())
  assert.equal(flushed, 1)
  await rig.run(producer.shutdown())
})

test("a send in onError finds room in a spool that is full behind the record it was told of", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 50
  const { producer } = rig.live({
    spool: { maxSpoolBytes: 250 },
    onError: async () => void (await producer.send(bytes("in its place"))),
  })
  const sends = ["x".repeat(60), "a", "b", "c", "d"].map((text) => producer.send(bytes(text)))
  await rig.run(Promise.all(sends))
  await rig.run(producer.flush())
  assert.deepEqual(rig.backend.texts("t").sort(), ["a", "b", "c", "d", "in its place"])
  await rig.run(producer.shutdown())
})

test("an append of the spool whose outcome nobody knows stops it: the next opening finds out", async () => {
  const rig = new SpoolRig()
  const { producer, process } = rig.live()
  await rig.run(producer.send(bytes("a")))
  await rig.run(producer.flush())
  process.losesAnswers = (topic) =>
    topic === "lane-0" ? new StorageError("the worker died", { outcome: "unknown" }) : undefined
  await assert.rejects(rig.run(producer.send(bytes("b"))), (error: MillraceError) => error.outcome === "unknown")
  process.losesAnswers = () => undefined
  await assert.rejects(rig.run(producer.send(bytes("c"))), /has stopped/)
  await assert.rejects(rig.run(producer.shutdown()), StorageError)
  const next = rig.live()
  await rig.run(next.producer.send(bytes("d")))
  await rig.run(next.producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["a", "b", "d"])
  await rig.run(next.producer.shutdown())
})

test("a batch of which only a part found room tells which records were not accepted", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const { producer } = rig.live({ spool: { maxSpoolBytes: 100 }, failureMode: "failImmediately" })
  const batch = ["a", "b", "c", "d"].map((text) => bytes(text.repeat(20)))
  const before = producer.sendBatch(batch)
  await assert.rejects(rig.run(before), (error: MillraceError) => {
    assert.equal(error.kind, "buffer-full")
    return true
  })
  assert.equal(producer.spool.depth().records, 0)
  await rig.run(producer.shutdown({ timeoutMs: 0 }).catch(() => {}))
})

test("resendRefused with no room rejects, and leaves no rejection unobserved", async () => {
  const rig = new SpoolRig()
  const unobserved: unknown[] = []
  const listen = (error: unknown): void => void unobserved.push(error)
  process.on("unhandledRejection", listen)
  try {
    rig.backend.largestPayloadBytes = 5
    const first = rig.live()
    for (let i = 0; i < 3; i++) {
      await rig.run(first.producer.send(bytes(`too large ${i}`)))
      await rig.run(first.producer.flush())
    }
    await assert.rejects(rig.run(first.producer.shutdown()))
    const slow = (process: DiskProcess): void => {
      process.readsSlowly = true
    }
    const second = rig.live({ spool: { maxSpoolBytes: 1 }, failureMode: "failImmediately" }, {}, slow)
    await rig.run(second.producer.init())
    await assert.rejects(second.producer.spool.resendRefused(), BufferFullError)
    await new Promise((resolve) => setImmediate(resolve))
    assert.deepEqual(unobserved, [])
    assert.equal(second.producer.spool.depth().refused, 3)
    await rig.run(second.producer.shutdown())
  } finally {
    process.off("unhandledRejection", listen)
  }
})

test("refused records are accepted anew once, however often that is asked at a time", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 5
  const first = rig.live()
  await rig.run(first.producer.send(bytes("too large")))
  await assert.rejects(rig.run(first.producer.shutdown()))
  rig.backend.largestPayloadBytes = 50
  const { producer } = rig.live()
  const both = [producer.spool.resendRefused(), producer.spool.resendRefused()]
  assert.deepEqual(await rig.run(Promise.all(both)), [1, 0])
  await rig.run(producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["too large"])
  assert.equal(producer.spool.depth().refused, 0)
  await rig.run(producer.shutdown())
})

test("a batch of several groups, of which the disk took the first, names the records that are not in the spool", async () => {
  const rig = new SpoolRig()
  let groups = 0
  const full = (process: DiskProcess): void => {
    process.refuses = (topic) => (topic === "lane-0" && ++groups > 1 ? new DiskFullError("no room") : undefined)
  }
  const { producer, process } = rig.live({ failureMode: "failImmediately" }, {}, full)
  // As many as a batch of the spool takes, and one more.
  const batch = Array.from({ length: (1 << 16) + 1 }, (_, i) => bytes(`${i}`))
  await assert.rejects(rig.run(producer.sendBatch(batch)), (error: PublishFailedError) => {
    assert.deepEqual(
      error.unconfirmed.map(({ payload }) => Buffer.from(payload ?? []).toString()),
      ["65536"],
    )
    assert.equal((error.publishCause() as DiskFullError).kind, "disk-full")
    assert.match(error.message, /the other 65536 records of the batch are in the spool/)
    return true
  })
  process.refuses = () => undefined
  await rig.run(producer.flush())
  assert.equal(rig.backend.texts("t").length, 1 << 16)
  await rig.run(producer.shutdown())
})

test("a flush, and those who wait for deliveries, hear of the end of the producer", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const { producer } = rig.live()
  const handle = await rig.run(producer.enqueue({ payload: bytes("a") }))
  const delivered = assert.rejects(handle.delivery, TimeoutError)
  const flushed = assert.rejects(producer.flush(), /1 record stays in the spool/)
  await assert.rejects(rig.run(producer.shutdown({ timeoutMs: 1_000 })), TimeoutError)
  await rig.run(flushed)
  await rig.run(delivered)
  await assert.rejects(rig.run(producer.flush()), /1 record stays in the spool/)
})

test("what waits behind a shutdown from inside onError is told, and stays", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 5
  const ended = Promise.withResolvers<void>()
  const { producer } = rig.live({
    spool: { maxSpoolBytes: 120 },
    onError: async () => {
      await producer.shutdown().catch(() => {})
      ended.resolve()
    },
  })
  const sends = [producer.send(bytes("too large")), producer.send(bytes("a")), producer.send(bytes("b"))]
  const waiting = assert.rejects(producer.send(bytes("c")), ClosedError)
  await rig.run(Promise.all(sends))
  await rig.run(ended.promise)
  await rig.run(waiting)
  assert.deepEqual(rig.backend.texts("t"), ["a", "b"])
})

test("a shutdown amid the opening lets nothing go out behind it", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const first = rig.live()
  await rig.run(first.producer.send(bytes("a")))
  await assert.rejects(rig.run(first.producer.shutdown({ timeoutMs: 0 })), TimeoutError)
  rig.backend.fate = () => ({})
  const second = rig.live({}, {}, (process) => {
    process.readsSlowly = true
  })
  const sent = assert.rejects(second.producer.send(bytes("b")), TimeoutError)
  const ended = second.producer.shutdown({ timeoutMs: 0 })
  await assert.rejects(rig.run(ended), /the spool "spool" was still being opened/)
  await rig.run(sent)
  await rig.clock.advance(1_000)
  await new Promise((resolve) => setTimeout(resolve, 50))
  await rig.clock.advance(1_000)
  assert.deepEqual(rig.backend.texts("t"), [])
  assert.equal(rig.clock.timers, 0)
})

test("refused records that nobody takes are bounded: above maxSpoolBytes no more are accepted until they are sent anew", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 5
  const first = rig.live({ spool: { maxSpoolBytes: 200 } })
  const refused = async (): Promise<void> => {
    for (let i = 0; i < 20; i++) {
      await rig.run(first.producer.send(bytes("too large")))
      await rig.run(first.producer.flush())
    }
  }
  await assert.rejects(refused(), (error: BufferFullError) => {
    assert.ok(error instanceof BufferFullError, String(error))
    assert.match(error.message, /maxSpoolBytes.*resendRefused/)
    return true
  })
  await assert.rejects(rig.run(first.producer.shutdown()), { kind: "publish-failed" })
  rig.backend.largestPayloadBytes = 50
  const second = rig.live({ spool: { maxSpoolBytes: 100 } })
  await rig.run(second.producer.init())
  await assert.rejects(rig.run(second.producer.send(bytes("a"))), BufferFullError)
  const count = second.producer.spool.depth().refused
  assert.equal(await rig.run(second.producer.spool.resendRefused()), count)
  await rig.run(second.producer.send(bytes("a")))
  await rig.run(second.producer.flush())
  assert.equal(rig.backend.texts("t").length, count + 1)
  await rig.run(second.producer.shutdown())
})

test("statistics count what an earlier process left as sent, so that nothing is below zero", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const first = rig.live()
  await rig.run(first.producer.send(bytes("a")))
  await assert.rejects(rig.run(first.producer.shutdown({ timeoutMs: 0 })))
  rig.backend.fate = () => ({})
  const second = rig.live()
  await rig.run(second.producer.flush())
  const { submittedRecords, submittedPayloadBytes, confirmedRecords, confirmedPayloadBytes } =
    second.producer.statistics
  assert.deepEqual([submittedRecords, submittedPayloadBytes, confirmedRecords, confirmedPayloadBytes], [1, 1, 1, 1])
  await rig.run(second.producer.shutdown())
})

test("a second shutdown hears the same, whether it comes amid the first or behind it", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const { producer, client } = rig.live()
  await rig.run(producer.send(bytes("a")))
  const first = producer.shutdown({ timeoutMs: 1_000 })
  const second = producer.shutdown()
  const [told, again] = await rig.run(Promise.allSettled([first, second]))
  assert.equal(told.status, "rejected")
  assert.deepEqual(again, told)
  await assert.rejects(rig.run(producer.shutdown()), /1 record stays in the spool/)
  await rig.run(client.close())
  rig.backend.fate = () => ({})
  const next = rig.live()
  await rig.run(next.producer.flush())
  await rig.run(Promise.all([next.producer.shutdown(), next.producer.shutdown(), next.client.close()]))
  assert.deepEqual(rig.backend.texts("t"), ["a"])
})

test("a send above the whole buffer, or a batch above the whole spool, is refused alone", async () => {
  const rig = new SpoolRig()
  const { producer } = rig.live({ maxBufferBytes: 200, spool: { maxSpoolBytes: 300 } })
  const neighbours = [producer.send(bytes("a")), producer.send(bytes("x".repeat(180))), producer.send(bytes("b"))]
  const [a, large, b] = await rig.run(Promise.allSettled(neighbours))
  assert.deepEqual([a?.status, b?.status], ["fulfilled", "fulfilled"])
  const error = (large as PromiseRejectedResult).reason as BufferFullError
  assert.ok(error instanceof BufferFullError)
  assert.equal(error.retryable, false)
  assert.match(error.message, /a send of 212 bytes is larger than the buffer .*takes 200 \(maxBufferBytes\)/)
  const wide = rig.live({ spool: { directory: "other", maxSpoolBytes: 300 } })
  await rig.run(producer.flush())
  await rig.run(producer.shutdown())
  const batch = Array.from({ length: 10 }, (_, i) => bytes(`${i}`))
  await assert.rejects(rig.run(wide.producer.sendBatch(batch)), /330 bytes is larger .*takes 300 \(maxSpoolBytes\)/)
  assert.equal(wide.producer.spool.depth().records, 0)
  await rig.run(wide.producer.shutdown())
  assert.deepEqual(rig.backend.texts("t"), ["a", "b"])
})
