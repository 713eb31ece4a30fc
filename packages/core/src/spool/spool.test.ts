/** What a spool promises while nothing kills it: acceptance, order, refusals, room, and what its ends leave behind. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  BufferFullError,
  ConnectionError,
  DiskFullError,
  InvalidError,
  PermissionError,
  StorageError,
  TimeoutError,
} from "@millrace/contract"
import type { PublishFailedError } from "../producer/publish-failed.ts"
import { bytes, SpoolRig } from "./spool-rig.test-support.ts"

test("a send is accepted while the backend is down, and goes out when it is there", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse", error: new ConnectionError("nobody there") })
  const { producer } = rig.live()
  for (const text of ["a", "b", "c"]) await rig.run(producer.send(bytes(text)))
  assert.equal(producer.spool.depth().records, 3)
  await rig.clock.advance(600_000)
  assert.deepEqual(rig.backend.texts("t"), [])
  assert.ok(rig.backend.appends.length < 40, `${rig.backend.appends.length} attempts in ten minutes`)
  rig.backend.fate = () => ({})
  await rig.run(producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["a", "b", "c"])
  assert.deepEqual(producer.spool.depth(), { records: 0, bytes: 0, refused: 0, possiblyDoubled: 0 })
  await rig.run(producer.shutdown())
  assert.equal(rig.clock.timers, 0)
})

test("flush and shutdown wait for sends that were called before, though nobody awaited them", async () => {
  for (const end of ["flush", "shutdown"] as const) {
    const rig = new SpoolRig()
    const { producer } = rig.live()
    const sent = producer.send(bytes("a"))
    await rig.run(producer[end]())
    assert.deepEqual(rig.backend.texts("t"), ["a"])
    await sent
    await rig.run(producer.shutdown())
  }
})

test("key, partition, headers, id and time of a record are those that were given", async () => {
  const rig = new SpoolRig({ partitions: 4 })
  const { producer } = rig.live()
  const sends = [
    producer.send(bytes("plain")),
    producer.send(null, { key: "k" }),
    producer.send(bytes("placed"), { partition: 3, headers: { a: "1" }, id: 77n, timestampMicros: 5n }),
  ]
  await rig.run(Promise.all(sends))
  await rig.run(producer.flush())
  const [placed] = rig.backend.records("t", 3).filter(({ id }) => id === 77n)
  assert.equal(placed?.timestampMicros, 5n)
  assert.deepEqual(
    [...(placed?.headers ?? [])].map(([name]) => name),
    ["a"],
  )
  const all = [0, 1, 2, 3].flatMap((partition) => rig.backend.records("t", partition))
  const keyed = all.find(({ key }) => key !== null)
  assert.equal(Buffer.from(keyed?.key ?? []).toString(), "k")
  assert.equal(keyed?.payload, null)
  assert.equal(all.length, 3)
  await rig.run(producer.shutdown())
})

test("the time of a record is that of its acceptance, however long it waited", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const { producer } = rig.live()
  await rig.run(producer.send(bytes("early")))
  const acceptedMicros = rig.clock.nowMicros()
  await rig.clock.advance(3_600_000)
  rig.backend.fate = () => ({})
  await rig.run(producer.flush())
  const [record] = rig.backend.records("t")
  assert.ok((record?.timestampMicros ?? 0n) <= acceptedMicros)
  await rig.run(producer.shutdown())
})

test("what is left at the deadline of a shutdown stays, is named, and goes out at the next start", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "vanish" })
  const first = rig.live()
  await rig.run(Promise.all(["a", "b"].map((text) => first.producer.send(bytes(text)))))
  await assert.rejects(rig.run(first.producer.shutdown({ timeoutMs: 2_000 })), (error: TimeoutError) => {
    assert.ok(error instanceof TimeoutError)
    assert.equal(error.context.spooledRecords, 2)
    assert.match(error.message, /2 records stay in the spool "spool": nothing is lost/)
    return true
  })
  assert.equal(rig.clock.timers, 0)
  rig.backend.fate = () => ({})
  const second = rig.live()
  await rig.run(second.producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["a", "b"])
  await rig.run(second.producer.shutdown())
})

test("records that are refused for good go to onError, and those behind them on their way", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 10
  const failures: PublishFailedError[] = []
  const { producer } = rig.live({ onError: (error) => void failures.push(error) })
  const texts = ["a", "b", "x".repeat(20), "c", "d"]
  await rig.run(Promise.all(texts.map((text) => producer.send(bytes(text)))))
  await rig.run(producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["a", "b", "c", "d"])
  assert.equal(failures.length, 1)
  assert.deepEqual(
    failures[0]?.unconfirmed.map(({ payload }) => payload?.length),
    [20],
  )
  await rig.run(producer.shutdown())
})

for (const [how, onError] of [
  ["without onError", undefined],
  [
    "when onError throws",
    () => {
      throw new Error("not today")
    },
  ],
] as const) {
  test(`${how}, refused records are kept aside, told at shutdown, and can be sent anew`, async () => {
    const rig = new SpoolRig()
    const no = new PermissionError("not you")
    rig.backend.fate = () => ({ outcome: "refuse", error: no })
    const first = rig.live(onError === undefined ? {} : { onError })
    await rig.run(Promise.all(["a", "b"].map((text) => first.producer.send(bytes(text), { id: 5n }))))
    await rig.run(first.producer.flush())
    assert.deepEqual(first.producer.spool.depth(), { records: 0, bytes: 0, refused: 2, possiblyDoubled: 0 })
    await assert.rejects(rig.run(first.producer.shutdown()), (error: PublishFailedError) => {
      assert.equal(error.unconfirmed.length, 2)
      assert.equal((error.publishCause() as PermissionError).kind, "permission")
      return true
    })
    rig.backend.fate = () => ({})
    const second = rig.live()
    await rig.run(second.producer.init())
    assert.equal(second.producer.spool.depth().refused, 2)
    const seen: string[] = []
    for await (const { topic, record, reason } of second.producer.spool.refused()) {
      seen.push(`${topic} ${Buffer.from(record.payload ?? []).toString()} ${record.id} ${reason}`)
    }
    assert.deepEqual(seen, ["t a 5 not you", "t b 5 not you"])
    assert.equal(await rig.run(second.producer.spool.resendRefused()), 2)
    await rig.run(second.producer.flush())
    assert.deepEqual(rig.backend.texts("t"), ["a", "b"])
    assert.equal(second.producer.spool.depth().refused, 0)
    await rig.run(second.producer.shutdown())
  })
}

test("a full spool makes sends wait, wait for a time, or fail, as the failure mode says", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const spool = { maxSpoolBytes: 100 }
  const { producer } = rig.live({ spool, failureMode: "failImmediately" })
  await rig.run(producer.send(bytes("a".repeat(60))))
  await assert.rejects(rig.run(producer.send(bytes("b".repeat(60)))), BufferFullError)
  await assert.rejects(rig.run(producer.send(bytes("b".repeat(600)))), (error: BufferFullError) => {
    assert.match(error.message, /maxSpoolBytes/)
    return error.retryable === false
  })
  await assert.rejects(rig.run(producer.shutdown({ timeoutMs: 0 })), TimeoutError)

  const timed = rig.live({ spool, failureMode: "blockWithTimeout", blockTimeoutMs: 500 })
  await assert.rejects(rig.run(timed.producer.send(bytes("b".repeat(60)))), TimeoutError)
  await assert.rejects(rig.run(timed.producer.shutdown({ timeoutMs: 0 })), TimeoutError)

  const blocking = rig.live({ spool })
  const waiting = blocking.producer.send(bytes("b".repeat(60)))
  await rig.clock.advance(5_000)
  assert.equal(blocking.producer.spool.depth().records, 1)
  rig.backend.fate = () => ({})
  await rig.run(waiting)
  await rig.run(blocking.producer.flush())
  assert.deepEqual(
    rig.backend.texts("t").map((text) => text[0]),
    ["a", "b"],
  )
  await rig.run(blocking.producer.shutdown())
})

test("a full disk makes sends wait, or fail with DiskFullError, and what was accepted goes out", async () => {
  const rig = new SpoolRig()
  let isFull = false
  const full = (process: { refuses: (topic: string) => Error | undefined }): void => {
    process.refuses = () => (isFull ? new DiskFullError("no room") : undefined)
  }
  const failing = rig.live({ failureMode: "failImmediately" }, {}, full)
  await rig.run(failing.producer.send(bytes("a")))
  isFull = true
  await assert.rejects(rig.run(failing.producer.send(bytes("b"))), (error: DiskFullError) => {
    return error instanceof DiskFullError && error.retryable && error.outcome === "rejected"
  })
  isFull = false
  await rig.run(failing.producer.flush())
  await rig.run(failing.producer.shutdown())

  const waiting = rig.live({}, {}, full)
  await rig.run(waiting.producer.send(bytes("c")))
  isFull = true
  const later = waiting.producer.send(bytes("d"))
  await rig.clock.advance(10_000)
  isFull = false
  await rig.run(later)
  await rig.run(waiting.producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["a", "c", "d"])
  await rig.run(waiting.producer.shutdown())
  assert.equal(rig.clock.timers, 0)
})

test("a shutdown on a disk that is full for good neither hangs nor loses", async () => {
  const rig = new SpoolRig()
  let isFull = false
  const life = rig.live({}, {}, (process) => {
    process.refuses = () => (isFull ? new DiskFullError("no room") : undefined)
  })
  await rig.run(life.producer.send(bytes("a")))
  isFull = true
  const unaccepted = assert.rejects(life.producer.send(bytes("b")), DiskFullError)
  await rig.run(life.producer.shutdown({ timeoutMs: 2_000 }).catch(() => {}))
  await unaccepted
  assert.equal(rig.clock.timers, 0)
  const next = rig.live()
  await rig.run(next.producer.flush())
  await rig.run(next.producer.shutdown())
  assert.deepEqual(rig.backend.texts("t"), ["a"])
})

test("a store that fails stops the spool: sends, flush and shutdown say so, and nothing hangs", async () => {
  const rig = new SpoolRig()
  const { producer, process } = rig.live()
  await rig.run(producer.send(bytes("a")))
  await rig.run(producer.flush())
  process.refuses = (topic) => (topic === "journal" ? new StorageError("the disk is broken") : undefined)
  await rig.run(producer.send(bytes("b")))
  await assert.rejects(rig.run(producer.flush()), /the spool in "spool" has stopped/)
  await assert.rejects(rig.run(producer.send(bytes("c"))), StorageError)
  await assert.rejects(rig.run(producer.shutdown()), StorageError)
  const next = rig.live()
  await rig.run(next.producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["a", "b"])
  await rig.run(next.producer.shutdown())
})

test("sends of several topics have lanes of their own: one that is refused delays no other", async () => {
  const rig = new SpoolRig()
  rig.backend.create("u")
  const failures: string[] = []
  const { producer, client } = rig.live({ onError: (error) => void failures.push(error.topic) }, { createTopic: false })
  const missing = client.stream("s").topic("missing")
  await rig.run(producer.sendTo(missing, bytes("lost")))
  await rig.run(producer.sendTo(client.stream("s").topic("u"), bytes("u1")))
  await rig.run(producer.send(bytes("t1")))
  await rig.run(producer.flush())
  assert.deepEqual([rig.backend.texts("t"), rig.backend.texts("u")], [["t1"], ["u1"]])
  assert.deepEqual(failures, ["missing"])
  await rig.run(producer.shutdown())
})

test("sendAndConfirm and enqueue tell where a record was stored, or why it was refused", async () => {
  const rig = new SpoolRig()
  const failures: unknown[] = []
  const { producer } = rig.live({ onError: (error) => void failures.push(error) })
  await rig.run(producer.send(bytes("a")))
  const delivery = await rig.run(producer.sendAndConfirm(bytes("b"), { key: "kk" }))
  assert.deepEqual(
    { offset: delivery.offset, keyBytes: delivery.keyBytes, payloadBytes: delivery.payloadBytes },
    { offset: 1n, keyBytes: 2, payloadBytes: 1 },
  )
  const handle = await rig.run(producer.enqueue({ payload: bytes("c") }))
  assert.equal((await rig.run(handle.delivery)).offset, 2n)
  rig.backend.largestPayloadBytes = 5
  await assert.rejects(rig.run(producer.sendAndConfirm(bytes("too large"))), { kind: "publish-failed" })
  assert.equal(failures.length, 0)
  const unseen = await rig.run(producer.enqueue({ payload: bytes("too large") }))
  await rig.run(producer.flush())
  assert.equal(failures.length, 1)
  await assert.rejects(unseen.delivery, { kind: "publish-failed" })
  await rig.run(producer.shutdown())
})

test("shutdown from inside onError, and a send there, neither hang nor lose", async () => {
  const rig = new SpoolRig()
  rig.backend.largestPayloadBytes = 5
  let sent: Promise<unknown> = Promise.resolve()
  let ended: Promise<unknown> = Promise.resolve()
  const { producer } = rig.live({
    onError: async () => {
      sent = producer.send(bytes("b"))
      await sent
      ended = producer.shutdown({ timeoutMs: 1_000 })
      await ended
    },
  })
  await rig.run(producer.send(bytes("too large")))
  await rig.until(() => rig.backend.texts("t").length === 1)
  await rig.run(ended.catch(() => {}))
  await assert.rejects(rig.run(producer.send(bytes("c"))), InvalidError)
  const next = rig.live({ onError: () => {} })
  await rig.run(next.producer.flush())
  await rig.run(next.producer.shutdown())
  assert.deepEqual(rig.backend.texts("t"), ["b"])
})

test("a spool of another format, and a log that is none, are refused by name", async () => {
  const rig = new SpoolRig()
  const first = rig.live()
  await rig.run(first.producer.init())
  await rig.run(first.producer.shutdown())
  for (const [format, whose] of [
    [0, /the spool in "spool" has format 0, of an older release/],
    [2, /format 2, of a newer release/],
  ] as const) {
    const topic = rig.disk.topics.get("format")
    const record = topic?.batches[0]?.records[0]
    if (topic === undefined || record === undefined) throw new Error("no format")
    topic.batches = [{ base: 0n, records: [{ ...record, payload: bytes(`millrace spool ${format}`) }] }]
    const { producer } = rig.live()
    await assert.rejects(rig.run(producer.send(bytes("a"))), whose)
    await rig.run(producer.shutdown())
  }
  const other = new SpoolRig()
  other.disk.streams.add("mine")
  const { producer } = other.live()
  await assert.rejects(other.run(producer.init()), /holds a log \(with a stream "mine"\) that is no spool/)
  await other.run(producer.shutdown())
})

test("a spool that cannot be opened is told by shutdown when nobody asked before", async () => {
  const rig = new SpoolRig()
  rig.disk.streams.add("mine")
  const { producer } = rig.live()
  await rig.clock.advance(100)
  await assert.rejects(rig.run(producer.shutdown()), InvalidError)
})

test("options that contradict a spool are refused", () => {
  const rig = new SpoolRig()
  assert.throws(() => rig.live({ shards: 2 }), /one lane a topic/)
  assert.throws(() => rig.live({ sharding: "balanced" }), /one lane a topic/)
  assert.throws(() => rig.live({ spool: { maxSpoolBytes: 0 } }), /maxSpoolBytes/)
  assert.throws(() => rig.live({ spool: { directory: "" } }), /directory/)
  assert.throws(() => rig.live({ spool: { onExpired: "drop" as never } }), /onExpired/)
  assert.throws(() => rig.live({ spool: { size: 1 } as never }), /unknown option/)
  assert.throws(() => rig.live({}, { retries: 3 }), /retries/)
  assert.throws(() => rig.live({}, { onUnknown: "fail" }), /onExpired "report"/)
})
