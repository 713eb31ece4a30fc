import assert from "node:assert/strict"
import { describe, it } from "node:test"
import type { QueueSpec } from "@millrace/contract"
import { EngineFixture } from "./engine.test-support.ts"
import { QueueFixture } from "./queue-fixture.test-support.ts"

describe("Of takers that wait for a queue", () => {
  const opened = (
    spec: Partial<QueueSpec> = {},
  ): { readonly store: EngineFixture; readonly queue: QueueFixture; append(count: number): void } => {
    const store = new EngineFixture()
    const topic = store.createTopic()
    return { store, queue: new QueueFixture(store, topic, { spec }), append: (count) => store.appendMany(topic, count) }
  }
  const told = (store: EngineFixture, takers: readonly number[]): number[] =>
    takers.flatMap((taker, i) => (store.replies.has(taker) ? [i] : []))

  it("as many are told as there are records, the first ones first", async () => {
    const { store, queue, append } = opened()
    using _ = store
    const takers = Array.from({ length: 300 }, () => queue.askReady(60_000))
    append(1)
    assert.deepEqual(told(store, takers), [0])
    append(2)
    assert.deepEqual(told(store, takers), [0, 1, 2])
  })

  it("a few at once, and the next ones as those have pulled, until nothing is left", async () => {
    const { store, queue, append } = opened()
    using _ = store
    const takers = Array.from({ length: 300 }, () => queue.askReady(60_000))
    append(100)
    const first = told(store, takers).length
    assert.ok(first > 1 && first <= 10, `${first} takers were told at once`)
    let pulls = 0
    for (; pulls < told(store, takers).length; pulls++) {
      queue.pull(10)
      await store.clock.advance(0)
    }
    assert.ok(pulls >= 10 && pulls <= 20, `${pulls} takers were told of ten pulls' worth of records`)
    assert.deepEqual([queue.pull().length, store.engine.waiting], [0, 300 - pulls])
  })

  it("no more than there is room for below the bound of what is pending", async () => {
    const { store, queue, append } = opened({ maxAckPending: 5 })
    using _ = store
    append(20)
    const held = queue.pull()
    const takers = Array.from({ length: 30 }, () => queue.askReady(60_000))
    assert.deepEqual(told(store, takers), [])
    queue.settle(held.slice(0, 2))
    assert.deepEqual(told(store, takers), [0, 1])
  })

  it("the next is told when one that was told does not pull", async () => {
    const { store, queue, append } = opened()
    using _ = store
    const takers = Array.from({ length: 3 }, () => queue.askReady(60_000))
    append(1)
    await store.clock.advance(99)
    assert.deepEqual(told(store, takers), [0])
    await store.clock.advance(1)
    assert.deepEqual(told(store, takers), [0, 1])
    assert.equal(queue.pull().length, 1)
    // Short of the message's own wait.
    await store.clock.advance(899)
    assert.deepEqual(told(store, takers), [0, 1])
  })

  it("one is told when the wait of a message is over that another has taken", async () => {
    const { store, queue, append } = opened()
    using _ = store
    append(1)
    queue.pull()
    const takers = Array.from({ length: 3 }, () => queue.askReady(60_000))
    await store.clock.advance(1000)
    assert.deepEqual(told(store, takers), [0])
    assert.equal(queue.pull()[0]?.deliveries, 2)
  })

  it("all hear that the queue is gone", async () => {
    const { store, queue, append } = opened()
    using _ = store
    const takers = Array.from({ length: 3 }, () => queue.askReady(60_000))
    append(1)
    queue.delete()
    assert.deepEqual(told(store, takers), [0, 1, 2])
  })
})
