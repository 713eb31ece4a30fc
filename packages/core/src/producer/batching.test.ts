/** What a batching producer promises (seed 000, "Batching producers"): when it flushes, order, and that nothing accepted is forgotten. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { HeaderValue, InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { bytes, counts, rig, run, texts } from "./batching-rig.test-support.ts"
import { PublishFailedError } from "./publish-failed.ts"

describe("when it flushes", () => {
  test("at maxRecords, inline: the send that trips the limit waits for its flush, the others do not", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = () => ({ delayMs: 50 })
    const batching = topic.batching().maxRecords(3).linger(1000).build()
    await batching.send(bytes("a"))
    await batching.send(bytes("b"))
    assert.equal(backend.appends.length, 0)
    let done = false
    const third = batching.send(bytes("c")).then(() => {
      done = true
    })
    await clock.advance(49)
    assert.equal(done, false)
    await run(clock, third)
    assert.deepEqual(counts(backend), [3])
    assert.deepEqual(backend.texts("t"), ["a", "b", "c"])
  })

  test("when the payload reaches maxBytes", async () => {
    const { topic, backend, clock } = rig()
    const batching = topic.batching().maxBytes(10).linger(1000).build()
    await batching.send(bytes("12345"))
    await run(clock, batching.send(bytes("67890")))
    assert.deepEqual(counts(backend), [2])
    await run(clock, batching.send(bytes("123456789012")))
    assert.deepEqual(counts(backend), [2, 1])
  })

  test("when linger expires, at most that long after the record", async () => {
    const { topic, backend, clock } = rig()
    const batching = topic.batching().linger(20).build()
    await clock.advance(25)
    await batching.send(bytes("a"))
    await clock.advance(14)
    assert.equal(backend.appends.length, 0)
    await clock.advance(1)
    assert.deepEqual(backend.texts("t"), ["a"])
    assert.equal(clock.timers, 0)
  })

  test("by default at 512 records, 1 MiB, 5 ms; a linger below 1 ms is 1 ms", async () => {
    const { topic, backend, clock } = rig()
    const batching = topic.batching().build()
    for (let i = 0; i < 511; i++) await batching.send(bytes("x"))
    assert.equal(backend.appends.length, 0)
    await run(clock, batching.send(bytes("x")))
    assert.deepEqual(counts(backend), [512])
    await batching.send(bytes("late"))
    await clock.advance(5)
    assert.deepEqual(counts(backend), [512, 1])
    const quick = topic.batching().linger(0).build()
    await quick.send(bytes("y"))
    await clock.advance(0.9)
    assert.equal(backend.appends.length, 2)
    await clock.advance(0.1)
    assert.equal(backend.appends.length, 3)
    const kibibyte = new Uint8Array(1000)
    for (let i = 0; i < 512 - 1; i++) await quick.send(kibibyte)
    await quick.flush()
  })

  test("flush sends what waits and settles with it; with nothing to send there is no request", async () => {
    const { topic, backend, clock } = rig()
    const batching = topic.batching().build()
    await batching.flush()
    await batching.send(bytes("a"))
    await run(clock, batching.flush())
    assert.deepEqual(counts(backend), [1])
    assert.equal(clock.timers, 0)
  })
})

describe("order and routing", () => {
  test("flushes run one at a time, in queue order, however the sends come", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = (append) => ({ delayMs: append === 0 ? 100 : 1 })
    const batching = topic.batching().maxRecords(10).linger(7).build()
    const expected = Array.from({ length: 95 }, (_, i) => `r${i}`)
    const sends = expected.map((text) => batching.send(bytes(text)))
    await run(clock, Promise.all([...sends, batching.flush()]))
    assert.equal(backend.mostInFlight, 1)
    assert.deepEqual(backend.texts("t"), expected)
    assert.deepEqual(counts(backend), [10, 10, 10, 10, 10, 10, 10, 10, 10, 5])
  })

  test("a slow backend makes batches larger, never a longer row of them", async () => {
    const { topic, backend, clock } = rig()
    backend.fate = () => ({ delayMs: 100 })
    const batching = topic.batching().linger(5).build()
    for (let i = 0; i < 100; i++) {
      await batching.send(bytes(`r${i}`))
      await clock.advance(5)
    }
    await run(clock, batching.flush())
    assert.equal(backend.records("t").length, 100)
    assert.ok(backend.appends.length <= 8, `${backend.appends.length} appends in 500 ms of 100 ms each`)
  })

  test("with a key every record goes where it points and keeps it; headers stay with their record", async () => {
    const { topic, backend, clock } = rig(8)
    const batching = topic.batching().maxRecords(2).linger(10_000).partitionKey("node-7").build()
    for (let i = 0; i < 6; i++) {
      await run(clock, batching.send(bytes(`r${i}`), i === 3 ? { type: HeaderValue.uint16(7) } : undefined))
    }
    const [partition] = backend.appends.map((append) => append.partition)
    assert.ok(backend.appends.every((append) => append.partition === partition))
    const records = backend.records("t", partition)
    assert.deepEqual(
      records.map(({ key }) => key && new TextDecoder().decode(key)),
      Array(6).fill("node-7"),
    )
    assert.equal(records[3]?.headers.get("type")?.value, 7)
  })

  test("without a key each flush goes to the next partition", async () => {
    const { topic, backend, clock } = rig(3)
    const batching = topic.batching().maxRecords(2).linger(10_000).build()
    for (let i = 0; i < 12; i++) await run(clock, batching.send(bytes(`r${i}`)))
    const partitions = backend.appends.map(({ partition }) => partition)
    assert.equal(partitions.length, 6)
    for (let i = 1; i < 6; i++) assert.equal(partitions[i], ((partitions[i - 1] as number) + 1) % 3)
  })

  test("the caller's bytes are its own again when send returns", async () => {
    const { topic, backend, clock } = rig()
    const batching = topic.batching().build()
    const reused = bytes("one")
    await batching.send(reused)
    reused.set(bytes("two"))
    await batching.send(reused)
    reused.fill(0)
    await run(clock, batching.flush())
    assert.deepEqual(backend.texts("t"), ["one", "two"])
  })
})

test("whatever is sent, flushed and refused: each record is stored, or told once; what is stored has the order of the calls", async () => {
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.constant("send" as const) },
    { weight: 2, arbitrary: fc.constant("wait" as const) },
    { weight: 1, arbitrary: fc.constantFrom("flush" as const, "drain" as const) },
  )
  const fates = fc.array(fc.record({ refuse: fc.boolean(), delayMs: fc.integer({ min: 0, max: 40 }) }), {
    maxLength: 12,
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fates, async (steps, fate) => {
      const { topic, backend, clock } = rig()
      backend.fate = (append) => {
        const { refuse = false, delayMs = 5 } = fate[append] ?? {}
        return refuse ? { outcome: "refuse", delayMs } : { delayMs }
      }
      const batching = topic.batching().maxRecords(5).linger(7).build()
      const told: string[] = []
      const tell = (error: unknown): void => {
        assert.ok(error instanceof PublishFailedError, String(error))
        told.push(...texts(error.unconfirmed))
      }
      const calls: Promise<void>[] = []
      let sent = 0
      for (const each of steps) {
        if (each === "send") calls.push(batching.send(bytes(`${sent++}`)).catch(tell))
        else if (each === "wait") await clock.advance(4)
        else if (each === "flush") calls.push(batching.flush().catch(tell))
        else await run(clock, batching.flush().catch(tell))
      }
      await run(clock, batching.close().catch(tell))
      await run(clock, Promise.all(calls))
      const stored = backend.texts("t")
      const everything = [...stored, ...told].map(Number).sort((a, b) => a - b)
      assert.deepEqual(
        everything,
        Array.from({ length: sent }, (_, i) => i),
      )
      for (let i = 1; i < stored.length; i++) assert.ok(Number(stored[i - 1]) < Number(stored[i]), "order")
      assert.equal(clock.timers, 0)
    }),
    { numRuns: 60 },
  )
})

test("options out of range are refused by name, with what is allowed", () => {
  const { topic } = rig()
  const cases: [() => unknown, RegExp][] = [
    [() => topic.batching().maxRecords(0), /"maxRecords" is 0; .* from 1/],
    [() => topic.batching().maxBytes(1.5), /"maxBytes" is 1.5/],
    [() => topic.batching().linger(-1), /"linger" is -1/],
    [() => topic.batching().linger(Number.NaN), /"linger" is NaN/],
    [() => topic.batching().partitionKey(""), /key must not be empty/],
  ]
  for (const [attempt, says] of cases) {
    assert.throws(attempt, (error) => error instanceof InvalidError && says.test(error.message))
  }
})
