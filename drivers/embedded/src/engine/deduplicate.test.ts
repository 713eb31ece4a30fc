import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { batchId } from "@millrace/contract"
import { EngineFixture } from "./engine.test-support.ts"

const windowMs = 120_000

describe("ids of a resend", () => {
  it("are recognised by the summary of their batch", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const batch = store.batch(topic, [{}, {}, {}])
    store.append(batch)
    const again = store.batch(topic, batch.records(), { resend: true })
    assert.deepEqual(store.append(again), { base: 0n, contiguous: true, duplicates: 3 })
    assert.equal(store.watermarks(topic).end, 3n)
  })

  it("are left out one by one, and what stays is recognised in its turn", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const first = store.batch(topic, [{}, {}])
    store.append(first)
    const lost = store.batch(topic, [{ payload: new Uint8Array(3) }, { payload: new Uint8Array(4) }])
    const mixed = [...first.records().slice(0, 1), ...lost.records()]
    const result = store.append(store.batch(topic, mixed, { resend: true }))
    assert.deepEqual(
      { contiguous: result.contiguous, base: result.base, duplicates: result.duplicates },
      { contiguous: false, base: undefined, duplicates: 1 },
    )
    assert.deepEqual(store.lengths(topic), [0, 0, 3, 4])
    assert.deepEqual(store.append(store.batch(topic, mixed.slice(1), { resend: true })), {
      base: 2n,
      contiguous: true,
      duplicates: 2,
    })
    const read = store.read(topic, 2n).batches.at(-1)
    assert.deepEqual([read?.id(0), read?.id(1)], [lost.records()[0]?.id, lost.records()[1]?.id])
  })

  it("that callers gave are found in the recent batches", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.append(store.batch(topic, [{ id: 77n }, { id: 78n }]))
    assert.equal(store.append(store.batch(topic, [{ id: 78n }], { resend: true })).base, 1n)
    assert.equal(store.append(store.batch(topic, [{ id: 79n }], { resend: true })).base, 2n)
  })

  it("are new when the window has passed", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const batch = store.batch(topic, [{}])
    store.append(batch)
    await store.clock.advance(windowMs + 1)
    assert.equal(store.append(store.batch(topic, batch.records(), { resend: true })).base, 1n)
  })

  it("count for their partition alone", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    const batch = store.batch(topic, [{}])
    store.append(batch)
    const elsewhere = store.batch(topic, batch.records(), { resend: true, partition: 1 })
    assert.equal(store.append(elsewhere).duplicates, 0)
  })

  it("are found in both halves of a batch that was split", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const whole = store.batch(topic, [{}, {}, {}])
    const records = whole.records()
    const [left, right] = whole.split()
    store.append(left)
    store.append(right)
    assert.deepEqual(store.append(store.batch(topic, records, { resend: true })), {
      base: 0n,
      contiguous: true,
      duplicates: 3,
    })
  })
})

describe("a topic that deduplicates ids", () => {
  it("recognises ids that callers give without being told of a resend, also twice in one batch", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ deduplicateIds: true })
    const result = store.append(store.batch(topic, [{ id: 5n }, { id: 6n }, { id: 5n, payload: new Uint8Array(9) }]))
    assert.equal(result.duplicates, 1)
    assert.deepEqual(store.lengths(topic), [0, 0])
    assert.deepEqual(store.append(store.batch(topic, [{ id: 6n }])), { base: 1n, contiguous: true, duplicates: 1 })
    assert.equal(store.append(store.batch(topic, [{ id: 8n }, {}])).base, 2n)
  })

  it("forgets them after the window, and keeps no rows of old ones", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ deduplicateIds: true, deduplicationWindowMs: 1000 })
    store.append(store.batch(topic, [{ id: 5n }]))
    await store.clock.advance(900)
    assert.equal(store.append(store.batch(topic, [{ id: 5n }])).duplicates, 1)
    await store.clock.advance(3000)
    assert.equal(store.append(store.batch(topic, [{ id: 5n }])).duplicates, 0)
  })

  it("does nothing with a window of 0", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ deduplicateIds: true, deduplicationWindowMs: 0 })
    const one = store.batch(topic, [{ id: 5n }], { id: batchId(1, 1, 1n), resend: true })
    assert.deepEqual([store.append(one).base, store.append(one).base], [0n, 1n])
  })
})
