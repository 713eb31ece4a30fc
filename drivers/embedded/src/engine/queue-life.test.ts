import assert from "node:assert/strict"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { describe, it } from "node:test"
import { CorruptionError, InvalidError, NotFoundError } from "@millrace/contract"
import { verifyStore } from "../verify.ts"
import { EngineFixture } from "./engine.test-support.ts"
import { offsets, QueueFixture } from "./queue-fixture.test-support.ts"

const _range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i)

function clean(store: EngineFixture): void {
  assert.deepEqual(verifyStore(store.path).problems, [])
}

describe("A queue that waits", () => {
  it("is told of a new record, of one that is given back, of one whose wait is over and of a deletion", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const queue = new QueueFixture(store, topic)
    const first = queue.askReady(60_000)
    store.appendMany(topic, 2)
    assert.equal(store.answer(first), true)
    const [one, two] = queue.pull()
    const given = queue.askReady(60_000)
    queue.settle([one as NonNullable<typeof one>], "nak", { delayMs: 300 })
    await store.clock.advance(299)
    assert.equal(store.replies.has(given), false)
    await store.clock.advance(1)
    assert.equal(store.answer(given), true)
    assert.deepEqual(
      queue.pull().map(({ offset, deliveries }) => [offset, deliveries]),
      [[0n, 2]],
    )
    const over = queue.askReady(60_000)
    await store.clock.advance(699)
    assert.equal(store.replies.has(over), false)
    await store.clock.advance(1)
    assert.equal(store.answer(over), true)
    assert.deepEqual(offsets(queue.pull()), [Number(two?.offset)])
    const gone = queue.askReady(60_000)
    queue.delete()
    assert.throws(() => store.answer(gone), NotFoundError)
    assert.throws(() => queue.pull(), NotFoundError)
    assert.throws(() => queue.settle([one as NonNullable<typeof one>]), NotFoundError)
  })

  it("is told that a process is gone which took something while it waited", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const queue = new QueueFixture(store, topic, { spec: { ackWaitMs: 600_000 } })
    await store.clock.advance(900)
    const ready = queue.askReady(60_000)
    const other = new EngineFixture(store.path)
    const taker = new QueueFixture(other, topic, { spec: { ackWaitMs: 600_000 } })
    other.appendMany(topic, 2)
    assert.equal(taker.pull().length, 2)
    other.engine.close()
    const db = new DatabaseSync(join(store.path, "millrace.db"))
    db.exec("UPDATE queue_holder SET pid = 4194305, started = '1'")
    db.close()
    await store.clock.advance(2000)
    assert.equal(store.answer(ready), true)
    assert.deepEqual(offsets(queue.pull()), [0, 1])
  })

  it("answers false when its time is over", async () => {
    using store = new EngineFixture()
    const queue = new QueueFixture(store, store.createTopic())
    const id = queue.askReady(50)
    await store.clock.advance(50)
    assert.equal(store.answer(id), false)
  })
})

describe("A queue's messages leave it", () => {
  it("with what retention and trimming take, also those that are handed out", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 3)
    store.appendMany(topic, 3)
    store.appendMany(topic, 3)
    const queue = new QueueFixture(store, topic, { spec: { maxAckPending: 4 } })
    const held = queue.pull()
    assert.deepEqual(offsets(held), [0, 1, 2, 3])
    const ready = queue.askReady(60_000)
    store.call("catalog.trim", { at: { stream: topic.stream, topic: topic.topic, partition: 0 }, before: 3n })
    assert.equal(queue.describe().ackPending, 1)
    await store.clock.advance(1000)
    assert.equal(store.answer(ready), true)
    assert.deepEqual(offsets(queue.pull()), [3, 4, 5, 6])
    assert.deepEqual(queue.settle(held), [false, false, false, false])
    clean(store)
  })

  it("with a purge: it goes on at the first record of the new history", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 3)
    const queue = new QueueFixture(store, topic, { spec: { startAt: { kind: "offset", value: 2n } } })
    const held = queue.pull()
    store.call("catalog.purgeTopic", { stream: topic.stream, topic: topic.topic })
    assert.deepEqual(queue.settle(held), [false])
    assert.deepEqual(queue.pull(), [])
    store.appendMany(topic, 2)
    assert.deepEqual(offsets(queue.pull()), [0, 1])
    assert.deepEqual(queue.settle(held), [false], "an old token names nothing of the new history")
    clean(store)
  })

  it("with their topic, for ever", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 3)
    const queue = new QueueFixture(store, topic)
    queue.pull()
    store.call("catalog.deleteTopic", { stream: topic.stream, topic: topic.topic })
    assert.throws(() => queue.pull(), NotFoundError)
    clean(store)
    store.createTopic()
    assert.throws(() => queue.pull(), NotFoundError)
    assert.throws(() => queue.describe(), NotFoundError)
  })
})

describe("A queue that exists", () => {
  it("is opened as it was made, and refused with other settings, which are named", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    new QueueFixture(store, topic, { spec: { maxAckPending: 7 } })
    const open = (spec: object): QueueFixture => new QueueFixture(store, topic, { spec: { maxAckPending: 7, ...spec } })
    open({ startAt: { kind: "end" } })
    assert.throws(
      () => open({ ackWaitMs: 5, maxAckPending: 8 }),
      (error: Error) =>
        error instanceof InvalidError &&
        /ackWaitMs is 1000 there and 5 here; maxAckPending is 7 there and 8/.test(error.message),
    )
    assert.throws(() => open({ backoffMs: [1, 2] }), /backoffMs is \[\] there and \[1, 2\] here/)
    assert.throws(() => open({ maxDeliver: 3 }), /maxDeliver is without a bound there and 3 here/)
    assert.throws(() => open({ ackPolicy: "all" }), /ackPolicy is explicit there and all here/)
  })
})

describe("After a restart", () => {
  it("what was handed out waits from when it was seen, whatever the wall clock did", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 2)
    const queue = new QueueFixture(store, topic)
    const held = queue.pull()
    await store.clock.advance(900)
    store.reopen(() => store.clock.setWall(1_000n))
    queue.open()
    assert.deepEqual(queue.pull(), [])
    await store.clock.advance(999)
    assert.deepEqual(queue.pull(), [])
    await store.clock.advance(1)
    assert.deepEqual(offsets(queue.pull()), [0, 1])
    assert.deepEqual(queue.settle(held), [false, false])
  })

  it("what a process had that is gone is handed out at once", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 2)
    const queue = new QueueFixture(store, topic)
    queue.pull()
    store.reopen(() => {
      const db = new DatabaseSync(join(store.path, "millrace.db"))
      db.exec("UPDATE queue_holder SET pid = 4194305, started = '1'")
      db.close()
    })
    queue.open()
    assert.deepEqual(offsets(queue.pull()), [0, 1])
    clean(store)
  })

  it("what was settled stays so, and given back records keep their delay", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 3)
    const queue = new QueueFixture(store, topic)
    const [one, two, three] = queue.pull() as [never, never, never]
    queue.settle([one], "ack", { confirm: true })
    queue.settle([two], "nak", { delayMs: 50 })
    queue.settle([three], "terminate")
    store.reopen()
    queue.open()
    assert.deepEqual(queue.pull(), [])
    const { ackPending, redelivered, delayed } = queue.describe()
    assert.deepEqual({ ackPending, redelivered, delayed }, { ackPending: 1, redelivered: 1, delayed: 1 })
    await store.clock.advance(50)
    assert.deepEqual(
      queue.pull().map(({ offset, deliveries }) => [offset, deliveries]),
      [[1n, 2]],
    )
  })
})

describe("A batch that is damaged", () => {
  it("keeps back only itself, and is told when there is nothing else", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2, durability: "written" })
    for (const count of [3, 2, 4]) store.appendMany(topic, count)
    store.appendMany(topic, 2, { partition: 1 })
    const queue = new QueueFixture(store, topic)
    assert.equal(queue.pull(4).length, 4)
    const db = new DatabaseSync(join(store.path, "millrace.db"))
    db.exec("UPDATE batch SET body = randomblob(length) WHERE base = 3 AND count = 2")
    db.close()
    await store.clock.advance(1000)
    const got = queue.pull()
    assert.deepEqual(
      got.map(({ partition, offset }) => [partition, Number(offset)]),
      [
        [0, 0],
        [0, 1],
        [0, 2],
        [1, 0],
        [1, 1],
      ],
    )
    assert.throws(() => queue.pull(), CorruptionError)
    assert.deepEqual(queue.settle(got), [true, true, true, true, true])
    assert.equal(queue.describe().ackPending, 1)
    store.call("catalog.trim", { at: { stream: topic.stream, topic: topic.topic, partition: 0 }, before: 5n })
    assert.deepEqual(offsets(queue.pull()), [5, 6, 7, 8])
  })
})
