import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { verifyStore } from "../verify.ts"
import { EngineFixture } from "./engine.test-support.ts"
import { offsets, type Pulled, QueueFixture } from "./queue-fixture.test-support.ts"
import type { SettleOutcome } from "./queue-settle.ts"

interface Filled {
  readonly store: EngineFixture
  readonly queue: QueueFixture
  readonly held: Pulled[]
  [Symbol.dispose](): void
}

/** A queue of which all records are handed out. */
function filled(options: { readonly spec?: object; readonly count?: number } = {}): Filled {
  const store = new EngineFixture()
  const topic = store.createTopic()
  store.appendMany(topic, options.count ?? 4)
  const queue = new QueueFixture(store, topic, { spec: options.spec ?? {} })
  return { store, queue, held: queue.pull(), [Symbol.dispose]: () => store[Symbol.dispose]() }
}

const at = (messages: readonly Pulled[], ...places: readonly number[]): Pulled[] =>
  places.map((place) => messages[place] as Pulled)

function clean({ store }: Filled): void {
  assert.deepEqual(verifyStore(store.path).problems, [])
}

describe("A settlement", () => {
  it("counts once: the first verdict wins", () => {
    using filling = filled()
    const { queue, held } = filling
    assert.deepEqual(queue.settle(at(held, 1, 1)), [true, false])
    for (const verdict of ["ack", "nak", "inProgress", "terminate"] as const)
      assert.deepEqual(queue.settle(at(held, 1), verdict), [false], verdict)
    assert.deepEqual(queue.settle(at(held, 0), "terminate"), [true])
    assert.deepEqual(queue.settle(at(held, 0)), [false])
    assert.equal(queue.describe().ackPending, 2)
    clean(filling)
  })

  it("counts after the wait while nobody else has the message, and not behind that", async () => {
    using filling = filled()
    const { store, queue, held } = filling
    await store.clock.advance(5000)
    assert.equal(queue.describe().delayed, 4)
    assert.deepEqual(queue.settle(at(held, 0)), [true])
    assert.deepEqual(offsets(queue.pull(1)), [1])
    assert.deepEqual(queue.settle(at(held, 0, 1, 2)), [false, false, true])
    clean(filling)
  })

  it("gives a message back at once or after its delay, with one more delivery", async () => {
    using filling = filled()
    const { store, queue, held } = filling
    assert.deepEqual(queue.settle(at(held, 0, 2), "nak"), [true, true])
    assert.deepEqual(queue.settle(at(held, 1), "nak", { delayMs: 250 }), [true])
    assert.deepEqual(queue.settle(at(held, 0, 1, 2)), [false, false, false])
    const { ackPending, redelivered, delayed } = queue.describe()
    assert.deepEqual({ ackPending, redelivered, delayed }, { ackPending: 4, redelivered: 3, delayed: 3 })
    const again = queue.pull()
    assert.deepEqual(offsets(again), [0, 2])
    await store.clock.advance(249)
    assert.deepEqual(queue.pull(), [])
    await store.clock.advance(1)
    const [late] = queue.pull()
    assert.deepEqual([late?.offset, late?.deliveries], [1n, 2])
    assert.deepEqual(queue.settle([...again, late as Pulled]), [true, true, true])
    clean(filling)
  })

  it("lets the wait of one message begin anew, any number of times, under the same token", async () => {
    using filling = filled()
    const { store, queue, held } = filling
    for (let i = 0; i < 5; i++) {
      await store.clock.advance(600)
      assert.deepEqual(queue.settle(at(held, 1, 3), "inProgress"), [true, true])
    }
    assert.deepEqual(offsets(queue.pull()), [0, 2])
    assert.deepEqual(queue.settle(at(held, 0, 1, 2)), [false, true, false])
    await store.clock.advance(999)
    assert.deepEqual(queue.pull().length, 0)
    assert.deepEqual(queue.settle(at(held, 3), "nak"), [true])
    assert.deepEqual(offsets(queue.pull()), [3])
    assert.deepEqual(queue.settle(at(held, 3)), [false])
    clean(filling)
  })

  it("lets the wait of a whole delivery begin anew", async () => {
    using filling = filled()
    const { store, queue, held } = filling
    await store.clock.advance(999)
    assert.deepEqual(queue.settle(held, "inProgress"), [true, true, true, true])
    await store.clock.advance(999)
    assert.deepEqual(queue.pull(), [])
    assert.deepEqual(queue.settle(at(held, 2, 0)), [true, true])
    await store.clock.advance(1)
    assert.deepEqual(offsets(queue.pull()), [1, 3])
    clean(filling)
  })

  it("counts in the order of the list within one call", () => {
    using filling = filled()
    const { store, queue, held } = filling
    const run = (place: number, verdict: string): object => ({
      lease: held[place]?.lease,
      first: held[place]?.offset,
      count: 1,
      verdict,
      delayMs: 0,
    })
    const runs = [
      run(0, "inProgress"),
      run(0, "ack"),
      run(0, "nak"),
      run(1, "nak"),
      run(1, "ack"),
      run(2, "inProgress"),
      run(2, "inProgress"),
      run(2, "terminate"),
    ]
    const outcomes = store.call<SettleOutcome[]>("queues.settle", {
      topic: { stream: queue.topic.stream, topic: queue.topic.topic },
      queue: queue.open(),
      name: "work",
      runs,
      confirm: true,
    })
    assert.deepEqual(outcomes, [true, true, false, true, false, true, true, true])
    assert.deepEqual(offsets(queue.pull()), [1])
    assert.equal(queue.describe().ackPending, 2)
    clean(filling)
  })

  it("of a run says which of it counted", () => {
    using filling = filled()
    const { store, queue, held } = filling
    queue.settle(at(held, 2))
    const [outcome] = store.call<SettleOutcome[]>("queues.settle", {
      topic: { stream: queue.topic.stream, topic: queue.topic.topic },
      queue: queue.open(),
      name: "work",
      runs: [{ lease: held[0]?.lease, first: 0n, count: 6, verdict: "ack", delayMs: 0 }],
      confirm: false,
    })
    assert.deepEqual([...(outcome as Uint8Array)], [1, 1, 0, 1, 0, 0])
    assert.deepEqual(queue.describe().partitions, [{ partition: 0, floor: 4n, next: 4n }])
    clean(filling)
  })
})

describe("Where an ack covers what came before it", () => {
  it("it settles all lower offsets of its partition, whoever has them", async () => {
    using filling = filled({ spec: { ackPolicy: "all" }, count: 10 })
    const { store, queue, held } = filling
    assert.deepEqual(queue.settle(at(held, 1), "nak", { delayMs: 5 }), [true])
    assert.deepEqual(queue.settle(at(held, 2), "inProgress"), [true])
    assert.deepEqual(queue.settle(at(held, 6)), [true])
    assert.deepEqual(queue.settle(at(held, 2, 5, 6, 7)), [false, false, false, true])
    assert.deepEqual(queue.describe().partitions, [{ partition: 0, floor: 8n, next: 10n }])
    await store.clock.advance(1000)
    const again = queue.pull()
    assert.deepEqual(offsets(again), [8, 9])
    assert.deepEqual(queue.settle(at(held, 9)), [false], "another has it")
    assert.equal(queue.describe().ackPending, 2)
    assert.deepEqual(queue.settle(at(again, 0, 1), "terminate"), [true, true])
    clean(filling)
  })

  it("it leaves other partitions alone, and an ack that does not count covers nothing", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    for (const partition of [0, 1]) store.appendMany(topic, 3, { partition })
    const queue = new QueueFixture(store, topic, { spec: { ackPolicy: "all" } })
    const held = queue.pull()
    const second = held.filter(({ partition }) => partition === 1)
    assert.deepEqual(queue.settle(at(second, 1)), [true])
    assert.equal(queue.describe().ackPending, 4)
    await store.clock.advance(1000)
    queue.pull()
    assert.deepEqual(queue.settle(held), [false, false, false, false, false, false])
    assert.equal(queue.describe().ackPending, 4)
    assert.deepEqual(verifyStore(store.path).problems, [])
  })
})
