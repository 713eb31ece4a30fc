import assert from "node:assert/strict"
import { describe, it } from "node:test"
import type { TopicDescription } from "@millrace/contract"
import { EngineFixture, log } from "./engine.test-support.ts"
import type { PollAnswer } from "./readers.ts"

const limits = { maxRecords: 1000, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 1000 }

function openReader(
  store: EngineFixture,
  topic: TopicDescription,
  reader: number,
  partitions: readonly number[],
): void {
  const { stream, topic: name, lineage } = topic
  const fresh = partitions.map((partition) => ({
    slot: partition,
    stream,
    topic: name,
    partition,
    offset: 0n,
    lineage,
  }))
  store.call("reader.set", { reader, slots: partitions, fresh })
}

describe("a waiting reader", () => {
  it("is answered by the append, at once", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    openReader(store, topic, 1, [0])
    const [id] = store.ask({ name: "reader.next", args: { reader: 1, limits } })
    assert.equal(store.replies.has(id as number), false)
    store.appendMany(topic, 2)
    assert.equal(store.got(id as number).nextOffset, 2n)
    assert.equal(store.engine.waiting, 0)
  })

  it("waits for as many records as it wants, and takes what is there when the time is over", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    openReader(store, topic, 1, [0])
    const [id] = store.ask({ name: "reader.next", args: { reader: 1, limits: { ...limits, minRecords: 5 } } })
    store.appendMany(topic, 2)
    await store.clock.advance(999)
    assert.equal(store.replies.has(id as number), false)
    await store.clock.advance(1)
    assert.equal(store.got(id as number).nextOffset, 2n)
  })

  it("answers nothing when nothing came", async () => {
    using store = new EngineFixture()
    openReader(store, store.createTopic(), 1, [0])
    const [id] = store.ask({ name: "reader.next", args: { reader: 1, limits } })
    await store.clock.advance(1000)
    assert.deepEqual(store.answer<PollAnswer>(id as number).reads, [])
  })

  it("takes note of new positions, of a deleted topic, and of its end", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    store.appendMany(topic, 3, { partition: 1 })
    openReader(store, topic, 1, [0])
    const ask = (): number => store.ask({ name: "reader.next", args: { reader: 1, limits } })[0] as number
    const first = ask()
    openReader(store, topic, 1, [0, 1])
    assert.equal(store.got(first).nextOffset, 3n)
    const second = ask()
    store.call("catalog.deleteTopic", log)
    assert.throws(() => store.got(second), { kind: "not-found" })
    openReader(store, topic, 1, [])
    const third = ask()
    store.call("reader.close", 1)
    assert.deepEqual(store.answer<PollAnswer>(third).reads, [])
  })

  it("hears of another session's appends", async () => {
    using store = new EngineFixture()
    using other = new EngineFixture(store.path)
    const topic = store.createTopic()
    openReader(store, topic, 1, [0])
    const [id] = store.ask({ name: "reader.next", args: { reader: 1, limits: { ...limits, maxWaitMs: 60_000 } } })
    other.appendMany(topic, 1)
    assert.equal(store.replies.has(id as number), false)
    await store.clock.advance(1000)
    assert.equal(store.got(id as number).nextOffset, 1n)
  })
})

describe("a poll", () => {
  it("shares its limits among the partitions, and begins with another one each time", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 4 })
    for (let i = 0; i < 80; i++) store.appendMany(topic, 10, { partition: i % 4 })
    openReader(store, topic, 1, [0, 1, 2, 3])
    const poll = (): [number, bigint][] => {
      const [id] = store.ask({ name: "reader.next", args: { reader: 1, limits: { ...limits, maxRecords: 80 } } })
      return store
        .answer<PollAnswer>(id as number)
        .reads.map((read) => [read.slot, read.error === undefined ? read.nextOffset : -1n])
    }
    assert.deepEqual(poll(), [
      [0, 20n],
      [1, 20n],
      [2, 20n],
      [3, 20n],
    ])
    assert.equal(poll()[0]?.[0], 1)
  })

  it("gives a batch that is larger than its limits, alone", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 10, { bytes: 20_000 })
    store.appendMany(topic, 1)
    const got = store.read(topic, 0n, { limits: { maxBytes: 1000 } })
    assert.deepEqual([got.batches.length, got.nextOffset], [1, 10n])
  })

  it("lets a bad partition not spoil the others", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    store.appendMany(topic, 1, { partition: 1 })
    const { lineage } = topic
    const fresh = [
      { slot: 0, ...log, partition: 0, offset: 9n, lineage },
      { slot: 1, ...log, partition: 1, offset: 0n, lineage },
    ]
    store.call("reader.set", { reader: 1, slots: [0, 1], fresh })
    const [id] = store.ask({ name: "reader.next", args: { reader: 1, limits } })
    const [bad, good] = store.answer<PollAnswer>(id as number).reads
    assert.equal(bad?.error?.kind, "offset-out-of-range")
    assert.equal(
      bad?.error?.message,
      'offset 9 of partition 0 of topic "s/log" is out of range: it holds 0 to 0 (the end)',
    )
    assert.equal(good?.error, undefined)
  })
})
