/** What a batching producer tells of failed flushes, and how it ends (seed 000, "Batching producers"). */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, InvalidError, NotFoundError, RecordTooLargeError, TimeoutError } from "@millrace/contract"
import { bytes, failure, refuseFirst, rig, run, texts } from "./batching-rig.test-support.ts"

describe("failures", () => {
  test("an inline flush fails the send that tripped it, with every record of its batch, and is not kept", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = refuseFirst(1)
    const batching = topic.batching().maxRecords(2).linger(1000).build()
    await batching.send(bytes("a"))
    const error = await failure(run(clock, batching.send(bytes("b"))))
    assert.deepEqual(texts(error.unconfirmed), ["a", "b"])
    await run(clock, batching.flush())
    await run(clock, topic.batch(error.unconfirmed))
    assert.deepEqual(backend.texts("t"), ["a", "b"])
  })

  test("a failed timer flush is kept, the timer goes on, and the next flush reports it", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = refuseFirst(1)
    const batching = topic.batching().linger(5).build()
    await batching.send(bytes("a"))
    await clock.advance(10)
    assert.equal(backend.appends.length, 1)
    const error = await failure(run(clock, batching.flush()))
    assert.deepEqual(texts(error.unconfirmed), ["a"])
    assert.ok(error.unconfirmed[0]?.id !== undefined, "the id of the attempt is kept")
    await batching.send(bytes("b"))
    await clock.advance(5)
    await run(clock, batching.flush())
    assert.deepEqual(backend.texts("t"), ["b"])
  })

  test("a send that meets a kept failure is not queued; its record, with key and headers, is the last unconfirmed one", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = refuseFirst(1)
    const batching = topic.batching().linger(5).partitionKey("k").build()
    await batching.send(bytes("a"))
    await clock.advance(10)
    const mine = bytes("b")
    const error = await failure(batching.send(mine, { h: "1" }))
    mine.fill(0)
    assert.deepEqual(texts(error.unconfirmed), ["a", "b"])
    assert.deepEqual(error.unconfirmed[1]?.key, bytes("k"))
    await run(clock, batching.flush())
    assert.equal(backend.records("t").length, 0, "neither was queued again")
    await batching.send(bytes("c"))
    await run(clock, batching.flush())
    await run(clock, topic.batch(error.unconfirmed))
    assert.deepEqual(backend.texts("t"), ["c", "a", "b"])
    assert.equal(backend.records("t")[2]?.headers.get("h")?.value, "1")
  })

  test("several kept failures are one, with the first cause and the records of all, in order", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = refuseFirst(2)
    const batching = topic.batching().linger(5).build()
    await batching.send(bytes("a"))
    const slow = batching.send(bytes("b"))
    await slow
    backend.fate = (append) => ({ delayMs: 20, ...(append < 2 ? { outcome: "refuse" } : {}) })
    await clock.advance(6)
    await batching.send(bytes("c"))
    await clock.advance(60)
    assert.equal(backend.appends.length, 2)
    const error = await failure(run(clock, batching.close()))
    assert.deepEqual(texts(error.unconfirmed), ["a", "b", "c"])
    assert.equal(error.outcome, "rejected")
  })

  test("an unknown outcome is not hidden behind an earlier refusal", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = (append) => ({ delayMs: 20, outcome: append === 0 ? "refuse" : "lose" })
    const batching = topic.batching().linger(5).build()
    await batching.send(bytes("a"))
    await clock.advance(6)
    await batching.send(bytes("b"))
    await clock.advance(60)
    const error = await failure(run(clock, batching.flush()))
    assert.deepEqual(texts(error.unconfirmed), ["a", "b"])
    assert.equal(error.outcome, "unknown")
  })

  test("flush reports what was kept together with its own failure", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = refuseFirst(2)
    const batching = topic.batching().linger(5).build()
    await batching.send(bytes("a"))
    backend.fate = (append) => ({ delayMs: 20, ...(append < 2 ? { outcome: "refuse" } : {}) })
    await clock.advance(6)
    await batching.send(bytes("b"))
    const error = await failure(run(clock, batching.flush()))
    assert.deepEqual(texts(error.unconfirmed), ["a", "b"])
    await run(clock, batching.flush())
  })

  test("a topic that is not there fails as a publish, with the records that were accepted", async () => {
    const { client, clock } = rig()
    const batching = client.stream("s").topic("absent").batching().partitionKey("k").build()
    await batching.send(bytes("a"))
    await batching.send(bytes("b"), { h: "1" })
    const error = await failure(run(clock, batching.flush()))
    assert.ok(error.publishCause() instanceof NotFoundError)
    assert.deepEqual(texts(error.unconfirmed), ["a", "b"])
    assert.deepEqual(error.unconfirmed[0]?.key, bytes("k"))
  })

  test("a record that is refused is refused alone", async () => {
    const { topic, backend, clock } = rig()
    const batching = topic.batching().build()
    await batching.send(bytes("a"))
    await assert.rejects(batching.send(new Uint8Array(2000)), RecordTooLargeError)
    await assert.rejects(batching.send(bytes("x"), { "millrace-ct": "1" }), InvalidError)
    await assert.rejects(batching.send("text" as never), InvalidError)
    await batching.send(bytes("b"))
    await run(clock, batching.flush())
    assert.deepEqual(backend.texts("t"), ["a", "b"])
  })
})

describe("the end", () => {
  test("close flushes, stops the timer, refuses later sends, and a second close waits for the first", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = () => ({ delayMs: 30 })
    const batching = topic.batching().linger(10_000).build()
    await batching.send(bytes("a"))
    const closing = batching.close()
    await assert.rejects(
      batching.send(bytes("b")),
      (error) => error instanceof ClosedError && error instanceof InvalidError,
    )
    await run(clock, Promise.all([closing, batching.close()]))
    assert.deepEqual(backend.texts("t"), ["a"])
    assert.equal(clock.timers, 0)
    await batching.flush()
  })

  test("close reports what was kept, once", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = refuseFirst(1)
    const batching = topic.batching().linger(5).build()
    await batching.send(bytes("a"))
    await clock.advance(10)
    assert.deepEqual(texts((await failure(run(clock, batching.close()))).unconfirmed), ["a"])
    await batching.close()
  })

  test("await using closes it", async () => {
    const { topic, backend, clock } = rig()
    const scope = async (): Promise<void> => {
      await using batching = topic.batching().linger(10_000).build()
      await batching.send(bytes("a"))
    }
    await run(clock, scope())
    assert.deepEqual(backend.texts("t"), ["a"])
    assert.equal(clock.timers, 0)
  })

  test("closing the client flushes it, and says what was lost", async () => {
    const { topic, backend, client, clock } = rig()
    const batching = topic.batching().linger(10_000).build()
    await batching.send(bytes("a"))
    await run(clock, client.close())
    assert.deepEqual(backend.texts("t"), ["a"])
    await assert.rejects(batching.send(bytes("b")), ClosedError)
    assert.throws(() => topic.batching().build(), ClosedError)
    assert.equal(clock.timers, 0)

    const lossy = rig()
    lossy.backend.fate = refuseFirst(1)
    const other = lossy.topic.batching().linger(10_000).build()
    await other.send(bytes("a"))
    assert.deepEqual(texts((await failure(run(lossy.clock, lossy.client.close()))).unconfirmed), ["a"])
  })

  test("at the deadline of close every record is named, those that never left too", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = () => ({ outcome: "silence" })
    const batching = topic.batching().maxRecords(2).linger(10_000).build()
    const sends = ["a", "b", "c", "d", "e"].map((text) => batching.send(bytes(text)))
    const told = Promise.allSettled(sends)
    const error = await failure(run(clock, batching.close({ timeoutMs: 200 })))
    assert.deepEqual(texts(error.unconfirmed), ["e"])
    assert.ok(error.publishCause() instanceof TimeoutError)
    const outcomes = await told
    assert.deepEqual(
      outcomes.map(({ status }) => status),
      ["fulfilled", "rejected", "fulfilled", "rejected", "fulfilled"],
    )
    const [, second, , fourth] = outcomes as PromiseRejectedResult[]
    assert.deepEqual(texts((second as PromiseRejectedResult).reason.unconfirmed), ["a", "b"])
    assert.equal((second as PromiseRejectedResult).reason.outcome, "unknown", "it was on its way")
    assert.deepEqual(texts((fourth as PromiseRejectedResult).reason.unconfirmed), ["c", "d"])
    assert.equal((fourth as PromiseRejectedResult).reason.outcome, "rejected", "it never left")
    assert.equal(clock.timers, 0)
  })
})
