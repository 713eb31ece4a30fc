/** Pooled batches (seed 002, "Publishing with rented batches"; table 3.3 of the options): who owns the buffers, and when they are void. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, HeaderValue, InvalidError } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import { FakeBackend } from "./fake-backend.test-support.ts"
import type { PooledBatch } from "./pooled-batch.ts"
import type { PooledBatchBuilder } from "./pooled-batch-builder.ts"
import { builderOn, bytes, CountingPool, contents, text } from "./pooled-rig.test-support.ts"
import { PublishFailedError } from "./publish-failed.ts"

interface Rig {
  readonly clock: VirtualClock
  readonly backend: FakeBackend
  readonly client: Client
  readonly topic: Topic
  readonly pool: CountingPool
  readonly builder: PooledBatchBuilder
}

function rig(partitions = 4): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t", partitions)
  const client = openClient(backend.session, { publishRetries: 0 }, { clock, random: seededRandom(1) })
  const pool = new CountingPool()
  return { clock, backend, client, topic: client.stream("s").topic("t"), pool, builder: builderOn(pool) }
}

const stored = (backend: FakeBackend): (string | null)[] =>
  [0, 1, 2, 3].flatMap((partition) => backend.records("t", partition).map(({ payload }) => text(payload)))

describe("sending", () => {
  test("stores what was built, with keys, headers and ids, and gives the buffers back", async () => {
    const { topic, backend, pool, builder } = rig()
    const key = bytes("k")
    builder.add(bytes("a"), { key, headers: { type: HeaderValue.uint16(7) }, id: 5n }).add(bytes("b"), { partition: 2 })
    builder.addJson({ c: 1 }, { key: "k" })
    key.fill(0)
    const sent = await topic.producer().send(builder.build())
    assert.equal(pool.out.size, 0)
    assert.equal(sent.confirmations.length, 2)
    assert.deepEqual(new Set(stored(backend)), new Set(["a", "b", '{"c":1}']))
    const keyed = [0, 1, 2, 3].flatMap((partition) => backend.records("t", partition)).filter((record) => record.key)
    assert.deepEqual(
      keyed.map((record) => [text(record.payload), text(record.key), record.headers.get("type")?.value]),
      [
        ["a", "k", 7],
        ['{"c":1}', "k", undefined],
      ],
    )
    assert.equal(keyed[0]?.id, 5n)
  })

  test("sendBatch takes it too, with a route for all; an empty one makes no request", async () => {
    const { topic, backend, pool, builder } = rig()
    const producer = topic.producer()
    await producer.sendBatch(builder.add(bytes("a")).add(bytes("b")).build(), { partition: 3 })
    assert.deepEqual(backend.texts("t", 3), ["a", "b"])
    assert.deepEqual(await producer.send(builderOn(pool).build()), { confirmations: [] })
    assert.equal(backend.appends.length, 1)
    assert.equal(pool.out.size, 0)
  })

  test("the buffers are the batch's as long as the topic is being prepared", async () => {
    const { topic, backend, pool, builder } = rig()
    const producer = topic.producer()
    const sending = producer.send(builder.add(bytes("waits")).build())
    assert.equal(pool.out.size, 1)
    await sending
    assert.deepEqual(stored(backend), ["waits"])
    assert.equal(pool.out.size, 0)
  })

  test("a background producer gives them back once the batch is accepted", async () => {
    const { topic, backend, pool, builder, clock } = rig()
    const producer = topic.producer({ background: true })
    builder.add(bytes("a")).add(bytes("b"), { key: "k" })
    await producer.send(builder.build())
    assert.equal(pool.out.size, 0)
    const flushed = producer.flush()
    await clock.advance(100)
    await flushed
    assert.deepEqual(new Set(stored(backend)), new Set(["a", "b"]))
  })

  const failing: [string, (rig: Rig) => Promise<unknown>][] = [
    [
      "a backend that refuses",
      ({ topic, builder }) => topic.producer({ retries: 0 }).send(builder.add(bytes("a")).build()),
    ],
    [
      "a partition that does not exist",
      ({ topic, builder }) => topic.producer().sendBatch(builder.add(bytes("a")).build(), { partition: 9 }),
    ],
    [
      "options that contradict",
      ({ topic, builder }) => topic.producer().sendBatch(builder.add(bytes("a")).build(), { key: "k", partition: 1 }),
    ],
    [
      "a producer that was shut down",
      async ({ topic, builder }) => {
        const producer = topic.producer()
        await producer.shutdown()
        return await producer.send(builder.add(bytes("a")).build())
      },
    ],
    [
      "a topic that is not there",
      ({ client, builder }) =>
        client
          .stream("s")
          .topic("absent")
          .producer({ createTopic: false, retries: 0 })
          .send(builder.add(bytes("a")).build()),
    ],
  ]
  for (const [name, send] of failing) {
    test(`the buffers come back from ${name}`, async () => {
      const whole = rig()
      whole.backend.fate = () => ({ outcome: "refuse" })
      const outcome = send(whole).then(
        () => assert.fail("it succeeded"),
        (error: unknown) => error,
      )
      await whole.clock.advance(1000)
      assert.ok((await outcome) instanceof Error)
      assert.equal(whole.pool.out.size, 0)
    })
  }

  test("what a failure gives back stays valid when the buffers belong to others", async () => {
    const { topic, backend, pool, builder, clock } = rig()
    backend.fate = (append) => (append === 0 ? { outcome: "refuse" } : {})
    builder.add(bytes("payload-a"), { key: bytes("key-a") }).add(bytes("payload-b"), { key: "key-a" })
    const producer = topic.producer({ retries: 0 })
    const error: unknown = await producer.send(builder.build()).then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    assert.ok(error instanceof PublishFailedError)
    builderOn(pool).add(bytes("another batch in the same memory")).build()
    assert.deepEqual(
      error.unconfirmed.map((record) => [text(record.payload), text(record.key as Uint8Array)]),
      [
        ["payload-a", "key-a"],
        ["payload-b", "key-a"],
      ],
    )
    const resent = topic.batch(error.unconfirmed)
    await clock.advance(100)
    await resent
    assert.deepEqual(stored(backend), ["payload-a", "payload-b"])
  })

  test("records that no batch could take are copied out as well", async () => {
    const { topic, backend, pool, builder, clock } = rig(1)
    backend.breakWritersAfter = 1
    for (const each of ["in", "not in", "behind"]) builder.add(bytes(each), { key: bytes(`key of ${each}`) })
    const outcome = topic
      .producer({ retries: 0 })
      .send(builder.build())
      .then(
        () => undefined,
        (thrown: unknown) => thrown,
      )
    await clock.advance(100)
    const error = await outcome
    assert.ok(error instanceof PublishFailedError, String(error))
    assert.equal(pool.out.size, 0)
    assert.deepEqual(
      error.unconfirmed.map(({ payload, key }) => [text(payload), text(key as Uint8Array)]),
      [
        ["not in", "key of not in"],
        ["behind", "key of behind"],
      ],
    )
  })
})

test("what a background producer tells of later is a copy as well", async () => {
  const { topic, backend, pool, builder, clock } = rig()
  backend.breakWritersAfter = 1
  const told: PublishFailedError[] = []
  const producer = topic.producer({ background: { onError: (error) => void told.push(error) } })
  builder.add(bytes("in"), { partition: 0 }).add(bytes("not in"), { partition: 0 })
  await producer.init()
  await producer.send(builder.build())
  assert.equal(pool.out.size, 0)
  const ended = producer.shutdown()
  await clock.advance(100)
  await ended
  assert.deepEqual(
    told.flatMap(({ unconfirmed }) => unconfirmed).map(({ payload }) => text(payload)),
    ["not in"],
  )
})

describe("ownership", () => {
  const uses: [string, (batch: PooledBatch) => unknown][] = [
    ["count", (batch) => batch.count],
    ["payloadBytes", (batch) => batch.payloadBytes],
    ["payload", (batch) => batch.payload(0)],
  ]

  test("after a send every use throws, at once and for good", async () => {
    const { topic, pool, builder } = rig()
    const producer = topic.producer()
    const batch = builder.add(bytes("a")).build()
    const sending = producer.send(batch)
    for (const [, use] of uses) assert.throws(() => use(batch), /this pooled batch was sent/)
    await assert.rejects(producer.send(batch), InvalidError)
    await assert.rejects(topic.producer({ background: true }).sendBatch(batch), InvalidError)
    await sending
    batch[Symbol.dispose]()
    assert.equal(pool.out.size, 0)
  })

  test("a failed send takes it over just so", async () => {
    const { topic, builder } = rig()
    const producer = topic.producer()
    await producer.shutdown()
    const batch = builder.add(bytes("a")).build()
    await assert.rejects(producer.send(batch), ClosedError)
    await assert.rejects(
      producer.send(batch),
      (error) => error instanceof InvalidError && !(error instanceof ClosedError),
    )
  })

  test("a batch that is disposed gives its buffers back once, and cannot be sent", async () => {
    const { topic, pool, builder } = rig()
    const batch = builder.add(bytes("a")).build()
    batch[Symbol.dispose]()
    batch[Symbol.dispose]()
    assert.equal(pool.out.size, 0)
    for (const [, use] of uses) assert.throws(() => use(batch), /was disposed/)
    await assert.rejects(topic.producer().send(batch), InvalidError)
  })

  test("build works once; the builder's dispose gives back what was not built, and does nothing after build", () => {
    const pool = new CountingPool()
    {
      using abandoned = builderOn(pool)
      abandoned.add(bytes("a"))
      assert.equal(pool.out.size, 1)
    }
    assert.equal(pool.out.size, 0)
    const builder = builderOn(pool).add(bytes("a"))
    const batch = builder.build()
    builder[Symbol.dispose]()
    assert.deepEqual(contents(batch), ["a"])
    assert.throws(() => builder.build(), /after it was built/)
    assert.throws(() => builder.add(bytes("b")), /after it was built/)
    assert.throws(() => builder.addJson(1), InvalidError)
    batch[Symbol.dispose]()
    const gone = builderOn(pool)
    gone[Symbol.dispose]()
    assert.throws(() => gone.build(), /after it was disposed/)
    assert.equal(pool.out.size, 0)
  })

  test("an index that the batch does not have, and a size hint that is none", () => {
    const { topic, builder } = rig()
    const batch = builder.add(bytes("a")).build()
    assert.throws(() => batch.payload(1), /no record 1: it has 1/)
    assert.throws(() => topic.batchBuilder(0), /sizeHintBytes is 0/)
    assert.throws(() => topic.batchBuilder(1.5), InvalidError)
  })
})
