import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { verifyStore } from "../verify.ts"
import { EngineFixture } from "./engine.test-support.ts"
import { offsets, QueueFixture } from "./queue-fixture.test-support.ts"

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i)

function clean(store: EngineFixture): void {
  assert.deepEqual(verifyStore(store.path).problems, [])
}

describe("A queue hands out", () => {
  it("each record once, in the order of its partition, also several from one batch", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 5)
    store.appendMany(topic, 3)
    const queue = new QueueFixture(store, topic)
    assert.deepEqual(offsets(queue.pull(2)), [0, 1])
    assert.deepEqual(offsets(queue.pull(4)), [2, 3, 4, 5])
    assert.deepEqual(offsets(queue.pull()), [6, 7])
    assert.deepEqual(queue.pull(), [])
    const { ackPending, undelivered, partitions } = queue.describe()
    assert.deepEqual(
      { ackPending, undelivered, partitions },
      { ackPending: 8, undelivered: 0n, partitions: [{ partition: 0, floor: 0n, next: 8n }] },
    )
    clean(store)
  })

  it("nothing that was settled, and again what was not when its wait is over, before what is new", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 4)
    const queue = new QueueFixture(store, topic)
    const first = queue.pull(3)
    assert.deepEqual(queue.settle([first[1] as (typeof first)[0]]), [true])
    await store.clock.advance(999)
    assert.deepEqual(offsets(queue.pull(1)), [3])
    store.appendMany(topic, 2)
    await store.clock.advance(1)
    const again = queue.pull()
    assert.deepEqual(offsets(again), [0, 2, 4, 5])
    assert.deepEqual(
      again.map(({ deliveries }) => deliveries),
      [2, 2, 1, 1],
    )
    assert.deepEqual(queue.settle(first), [false, false, false])
    assert.deepEqual(queue.settle(again), [true, true, true, true])
    clean(store)
  })

  it("no more than the bound of what is pending, and goes on when some of it is settled", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    store.appendMany(topic, 5)
    store.appendMany(topic, 5, { partition: 1 })
    const queue = new QueueFixture(store, topic, { spec: { maxAckPending: 6 } })
    const first = queue.pull()
    assert.equal(first.length, 6)
    assert.deepEqual(queue.pull(), [])
    const ready = queue.askReady(10_000)
    assert.equal(store.replies.has(ready), false)
    queue.settle(first.slice(0, 1), "nak", { delayMs: 5000 })
    assert.equal(store.replies.has(ready), false)
    queue.settle(first.slice(1, 3))
    assert.equal(store.answer(ready), true)
    assert.equal(queue.pull().length, 2)
    clean(store)
  })

  it("no more bytes than asked for, but a first message that is larger alone", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 10, { bytes: 100 })
    const queue = new QueueFixture(store, topic)
    assert.deepEqual(offsets(queue.pull(10, 350)), [0, 1, 2])
    assert.deepEqual(offsets(queue.pull(10, 300)), [3, 4, 5])
    assert.deepEqual(offsets(queue.pull(10, 50)), [6])
    store.appendMany(topic, 1, { bytes: 100 })
    store.appendMany(topic, 1, { bytes: 100 })
    store.appendMany(topic, 1, { bytes: 100 })
    assert.deepEqual(offsets(queue.pull(10, 599)), [7, 8, 9, 10, 11])
    assert.deepEqual(offsets(queue.pull(10, 1)), [12])
    store.appendMany(topic, 3, { bytes: 100 })
    store.appendMany(topic, 1, { bytes: 10 })
    assert.deepEqual(offsets(queue.pull(10, 250)), [13, 14], "a smaller one behind does not overtake")
    assert.deepEqual(offsets(queue.pull(10, 250)), [15, 16])
  })

  it("from all partitions in turn, and from those that are added from their first record on", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    for (const partition of [0, 1]) store.appendMany(topic, 4, { partition })
    const queue = new QueueFixture(store, topic)
    const taken = [queue.pull(2), queue.pull(2), queue.pull(2)].flat()
    assert.deepEqual(
      taken.map(({ partition }) => partition),
      [0, 0, 1, 1, 0, 0],
    )
    store.call("catalog.addPartitions", { name: { stream: topic.stream, topic: topic.topic }, count: 1 })
    store.appendMany(topic, 1, { partition: 2 })
    const rest = queue.pull()
    assert.deepEqual(rest.map(({ partition, offset }) => [partition, offset]).sort(), [
      [1, 2n],
      [1, 3n],
      [2, 0n],
    ])
    clean(store)
  })

  it("from where it was made to begin", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 3)
    await store.clock.advance(1000)
    const time = store.clock.nowMicros()
    store.appendMany(topic, 3)
    const starts = [
      [{ kind: "first" }, 0],
      [{ kind: "last" }, 5],
      [{ kind: "end" }, 6],
      [{ kind: "offset", value: 4n }, 4],
      [{ kind: "offset", value: 9n }, 9],
      [{ kind: "timestampMicros", value: time }, 3],
      [{ kind: "timestampMicros", value: time + 1n }, 6],
    ] as const
    for (const [i, [startAt, from]] of starts.entries()) {
      const queue = new QueueFixture(store, topic, { spec: { startAt }, queue: `q${i}` })
      assert.deepEqual(offsets(queue.pull()), range(from, 6), startAt.kind)
    }
    store.appendMany(topic, 5)
    const late = new QueueFixture(store, topic, { spec: { startAt: { kind: "offset", value: 9n } }, queue: "q4" })
    assert.deepEqual(offsets(late.pull()), [9, 10])
  })

  it("with the wait that the delivery has, the last one for all that follow", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 1)
    const queue = new QueueFixture(store, topic, { spec: { backoffMs: [10, 200] } })
    assert.equal(queue.pull()[0]?.deliveries, 1)
    for (const [i, wait] of [10, 200, 200, 200].entries()) {
      await store.clock.advance(wait - 1)
      assert.deepEqual(queue.pull(), [])
      await store.clock.advance(1)
      assert.equal(queue.pull()[0]?.deliveries, i + 2)
    }
  })

  it("without keeping anything where the policy is none", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 4)
    const queue = new QueueFixture(store, topic, { spec: { ackPolicy: "none", maxAckPending: 1 } })
    assert.deepEqual(offsets(queue.pull(3)), [0, 1, 2])
    await store.clock.advance(100_000)
    assert.deepEqual(offsets(queue.pull(3)), [3])
    assert.equal(queue.describe().ackPending, 0)
    assert.deepEqual(queue.describe().partitions, [{ partition: 0, floor: 4n, next: 4n }])
    clean(store)
  })

  it("a part of a lease that is over, and the rest to the next one", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 6)
    const queue = new QueueFixture(store, topic)
    const old = queue.pull()
    queue.settle([old[2] as (typeof old)[0]])
    await store.clock.advance(1000)
    const one = queue.pull(3)
    assert.deepEqual(offsets(one), [0, 1, 3])
    assert.deepEqual(queue.settle(old.slice(4, 5)), [true], "nobody has it yet")
    const two = queue.pull(3)
    assert.deepEqual(offsets(two), [5])
    assert.deepEqual(queue.settle(old), [false, false, false, false, false, false])
    assert.deepEqual(queue.settle([...one, ...two]), [true, true, true, true])
    assert.equal(queue.describe().ackPending, 0)
    clean(store)
  })

  it("to several pulls of one commit what each of them can have", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 6)
    const queue = new QueueFixture(store, topic)
    queue.pull(5)
    await store.clock.advance(1000)
    const ids = store.ask(queue.pullRequest(2), queue.pullRequest(2), queue.pullRequest(2), queue.pullRequest(2))
    const got = ids.map((id) => offsets(queue.pulled(store.answer(id))))
    assert.deepEqual(got, [[0, 1], [2, 3], [4, 5], []])
  })

  it("what a commit that failed would have handed out", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ durability: "written" })
    store.appendMany(topic, 6)
    const queue = new QueueFixture(store, topic)
    queue.pull(3)
    await store.clock.advance(1000)
    const broken = { ...store.appendRequest(store.batch(topic, [{}])) }
    const args = { ...(broken.args as object), slab: undefined }
    const [id] = store.ask(queue.pullRequest(100), { name: "log.append", args })
    assert.throws(() => store.answer(id as number))
    assert.deepEqual(queue.describe().partitions, [{ partition: 0, floor: 0n, next: 3n }])
    const got = queue.pull()
    assert.deepEqual(
      got.map(({ offset, deliveries }) => [Number(offset), deliveries]),
      [
        [0, 2],
        [1, 2],
        [2, 2],
        [3, 1],
        [4, 1],
        [5, 1],
      ],
    )
    await store.clock.advance(1000)
    assert.deepEqual(offsets(queue.pull()), [0, 1, 2, 3, 4, 5])
    clean(store)
  })
})
