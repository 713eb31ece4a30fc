import assert from "node:assert/strict"
import { readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { describe, it } from "node:test"
import { OffsetOutOfRangeError } from "@millrace/contract"
import { verifyStore } from "../verify.ts"
import { EngineFixture, log } from "./engine.test-support.ts"

/** Long enough for the idle engine to have tidied up. */
const idleMs = 30_000

function segmentBytes(store: EngineFixture): number {
  const directory = join(store.path, "segments")
  return readdirSync(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0)
}

describe("retention by size", () => {
  it("removes the oldest batches, their rows and their files, and keeps to twice its limit on the disk", async () => {
    using store = new EngineFixture()
    const limit = 4 << 20
    const topic = store.createTopic({ partitions: 2, maxBytes: BigInt(limit) })
    let most = 0
    for (let i = 0; i < 120; i++) {
      store.appendMany(topic, 10, { bytes: 20_000, partition: i % 2 })
      most = Math.max(most, segmentBytes(store))
    }
    assert.ok(most <= 2 * limit, `${most} bytes of segments`)
    const { first, end } = store.watermarks(topic)
    assert.equal(end, 600n)
    assert.ok(first > 0n && (end - first) * 2n * 20_000n <= BigInt(limit), `first ${first}`)
    assert.throws(
      () => store.read(topic, 0n),
      (error: OffsetOutOfRangeError) => {
        assert.ok(error instanceof OffsetOutOfRangeError)
        assert.deepEqual([error.context.offset, error.context.first, error.context.end], [0n, first, end])
        return true
      },
    )
    assert.equal(store.read(topic, first).batches[0]?.firstOffset, first)
    await store.clock.advance(idleMs)
    assert.deepEqual(verifyStore(store.path).problems, [])
  })

  it("leaves the newest batch, however large", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ maxBytes: 1000n })
    store.appendMany(topic, 1, { bytes: 5000 })
    store.appendMany(topic, 1, { bytes: 6000 })
    assert.deepEqual(store.watermarks(topic), { first: 1n, end: 2n })
    assert.deepEqual(store.lengths(topic, 1n), [6000])
  })
})

describe("retention by age", () => {
  it("removes what is too old, with and without appends", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ expireAfterMs: 60_000 })
    store.appendMany(topic, 5)
    await store.clock.advance(50_000)
    store.appendMany(topic, 5)
    await store.clock.advance(20_000)
    assert.deepEqual(store.watermarks(topic), { first: 5n, end: 10n })
    await store.clock.advance(60_000)
    assert.deepEqual(store.watermarks(topic), { first: 10n, end: 10n })
    assert.equal(store.appendMany(topic, 1).base, 10n)
    assert.deepEqual(store.lengths(topic, 10n), [100])
    assert.deepEqual(verifyStore(store.path).problems, [])
  })
})

describe("trim, purge and delete", () => {
  it("trim removes whole batches below an offset, never the record at it", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    for (let i = 0; i < 4; i++) store.appendMany(topic, 5)
    const trim = (before: bigint): { first: bigint; end: bigint } =>
      store.call("catalog.trim", { at: { ...log, partition: 0 }, before })
    assert.equal(trim(4n).first, 0n)
    assert.equal(trim(12n).first, 10n)
    assert.deepEqual(store.lengths(topic, 12n).length, 10)
    assert.equal(trim(99n).first, 20n)
    assert.equal(store.appendMany(topic, 1).base, 20n)
  })

  it("purge begins at 0 with a new history; the old rows and files go in steps", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 3 })
    const singles = Array.from({ length: 900 }, (_, i) => store.batch(topic, [{}], { partition: i % 3 }))
    store.ask(...singles.map((batch) => store.appendRequest(batch)))
    for (let i = 0; i < 6; i++) store.appendMany(topic, 10, { bytes: 30_000, partition: i % 3 })
    store.call("catalog.purgeTopic", log)
    assert.throws(() => store.read(topic, 0n), { kind: "history-changed" })
    const purged = store.call<typeof topic>("catalog.describeTopic", log)
    assert.notEqual(purged.lineage, topic.lineage)
    assert.deepEqual(store.watermarks(purged), { first: 0n, end: 0n })
    assert.equal(store.appendMany(purged, 1).base, 0n)
    assert.deepEqual(verifyStore(store.path).problems, [])
    await store.clock.advance(idleMs)
    assert.equal(segmentBytes(store), 0)
    const report = verifyStore(store.path)
    assert.deepEqual([report.problems, report.batches], [[], 1])
  })

  it("a topic is swept though the store was closed in between", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    for (let i = 0; i < 5; i++) store.appendMany(topic, 10, { bytes: 30_000 })
    store.call("catalog.deleteStream", "s")
    store.reopen()
    assert.throws(() => store.call("catalog.describeStream", "s"), { kind: "not-found" })
    await store.clock.advance(idleMs)
    assert.equal(segmentBytes(store), 0)
    assert.deepEqual(verifyStore(store.path).problems, [])
  })
})
