import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { FencedError, type Identity, NotFoundError, SequenceError } from "@millrace/contract"
import { EngineFixture, log } from "./engine.test-support.ts"

describe("append", () => {
  it("gives contiguous offsets, and one time to a batch", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    assert.deepEqual([store.appendMany(topic, 3).base, store.appendMany(topic, 2).base], [0n, 3n])
    assert.equal(store.appendMany(topic, 1, { partition: 1 }).base, 0n)
    const { batches, nextOffset, head } = store.read(topic, 0n)
    assert.deepEqual(
      batches.map(({ firstOffset, lastOffset }) => [firstOffset, lastOffset]),
      [
        [0n, 2n],
        [3n, 4n],
      ],
    )
    assert.deepEqual([nextOffset, head], [5n, 5n])
    assert.equal(batches[0]?.timestampMicros(0), store.clock.nowMicros())
  })

  it("never lets append times go back when the clock does (A-35)", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const times = [1000n, 1001n, 900n, 902n, 1002n].map((micros) => {
      store.clock.setWall(micros)
      return store.appendMany(topic, 1).timestampMicros
    })
    assert.deepEqual(times, [1000n, 1001n, 1001n, 1001n, 1002n])
    const found = [900n, 1000n, 1001n, 1002n, 1003n].map(
      (value) =>
        store.call<{ value: { offset: bigint } }[]>("log.locate", [
          { ...log, partition: 0, at: { kind: "timestampMicros", value } },
        ])[0]?.value.offset,
    )
    assert.deepEqual(found, [0n, 0n, 1n, 4n, 5n])
  })

  it("reads the same after it was opened again, small batches and large ones", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 2, { bytes: 10 })
    store.appendMany(topic, 3, { bytes: 50_000 })
    store.appendMany(topic, 1, { bytes: 7 })
    const expected = [10, 10, 50_000, 50_000, 50_000, 7]
    assert.deepEqual(store.lengths(topic), expected)
    store.reopen()
    assert.deepEqual(store.lengths(topic), expected)
    assert.deepEqual(store.lengths(topic, 4n), [50_000, 50_000, 50_000, 7])
  })

  it("refuses a topic that was deleted, or created again", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.call("catalog.deleteTopic", log)
    assert.throws(() => store.appendMany(topic, 1), NotFoundError)
    const again = store.createTopic()
    assert.throws(() => store.appendMany(topic, 1), NotFoundError)
    assert.equal(store.appendMany(again, 1).base, 0n)
  })

  it("names the partition that is out of range", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 4 })
    assert.throws(() => store.appendMany(topic, 1, { partition: 7 }), {
      message: 'partition 7 of topic "s/log" is out of range: the topic has 4 partitions (0 to 3)',
    })
  })
})

describe("producer sequences", () => {
  it("append what continues, answer what was there, refuse gaps and old epochs", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const identity = store.call<Identity>("log.identify", { topic: log })
    const three = store.batch(topic, [{}, {}, {}])
    assert.equal(store.append(three, { ...identity, sequence: 0 }).base, 0n)
    assert.deepEqual(store.append(three, { ...identity, sequence: 0 }), {
      base: 0n,
      contiguous: true,
      duplicates: 3,
      timestampMicros: store.clock.nowMicros(),
    })
    assert.throws(() => store.append(three, { ...identity, sequence: 4 }), SequenceError)
    assert.equal(store.append(three, { ...identity, sequence: 3 }).base, 3n)
    const raised = store.call<Identity>("log.identify", { topic: log, bump: identity })
    assert.deepEqual(raised, { producerId: identity.producerId, epoch: identity.epoch + 1 })
    assert.throws(() => store.append(three, { ...identity, sequence: 6 }), FencedError)
    assert.throws(() => store.call("log.identify", { topic: log, bump: identity }), FencedError)
    assert.throws(() => store.append(three, { ...raised, sequence: 6 }), SequenceError)
    assert.equal(store.append(three, { ...raised, sequence: 0 }).base, 6n)
  })

  it("recognise the last five batches of a partition, also after it was opened again", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const identity = store.call<Identity>("log.identify", { topic: log })
    const one = store.batch(topic, [{}])
    for (let sequence = 0; sequence < 7; sequence++) store.append(one, { ...identity, sequence })
    store.reopen()
    for (let sequence = 2; sequence < 7; sequence++)
      assert.equal(store.append(one, { ...identity, sequence }).base, BigInt(sequence))
    assert.throws(() => store.append(one, { ...identity, sequence: 1 }), SequenceError)
  })

  it("go on over a purge, and forget what was written before it", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const identity = store.call<Identity>("log.identify", { topic: log })
    const one = store.batch(topic, [{}])
    store.append(one, { ...identity, sequence: 0 })
    store.call("catalog.purgeTopic", log)
    assert.throws(() => store.append(one, { ...identity, sequence: 0 }), SequenceError)
    assert.equal(store.append(one, { ...identity, sequence: 1 }).base, 0n)
  })

  it("are given out once, also after a crash between two sessions", () => {
    using store = new EngineFixture()
    store.createTopic()
    const first = store.call<Identity>("log.identify", { topic: log })
    store.reopen()
    assert.equal(store.call<Identity>("log.identify", { topic: log }).producerId, first.producerId + 1n)
  })
})

describe("a shared commit", () => {
  it("is not spoilt by one of its requests", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const other = store.createTopic({}, { stream: "s", topic: "other" })
    const ids = store.ask(
      store.appendRequest(store.batch(topic, [{}])),
      store.appendRequest(store.batch(topic, [{}], { partition: 9 })),
      { name: "catalog.createTopic", args: { name: log, spec: { partitions: 0 } } },
      store.appendRequest(store.batch(other, [{}, {}])),
      { name: "catalog.deleteTopic", args: { stream: "s", topic: "none" } },
      store.appendRequest(store.batch(topic, [{}])),
    )
    const outcomes = ids.map((id) => {
      try {
        return store.answer<{ base: bigint }>(id).base
      } catch (error) {
        return (error as Error).name
      }
    })
    assert.deepEqual(outcomes, [0n, "NotFoundError", "InvalidError", 0n, "NotFoundError", 1n])
    assert.deepEqual(store.watermarks(topic), { first: 0n, end: 2n })
    assert.deepEqual(store.watermarks(other), { first: 0n, end: 2n })
  })
})
