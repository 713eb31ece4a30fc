/** What a direct producer promises, over a backend in memory with a virtual clock. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  ClosedError,
  ConnectionError,
  DiskFullError,
  HeaderValue,
  InvalidError,
  murmur2,
  NotFoundError,
  RecordTooLargeError,
  TimeoutError,
  UnsupportedError,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import type { SendResult } from "./confirmation.ts"
import { FakeBackend, type Fate, fakeManifest } from "./fake-backend.test-support.ts"
import type { ProducerOptions } from "./producer-options.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { bytes, numbered, rig } from "./sending-rig.test-support.ts"

const offsets = (result: SendResult): [number, bigint, number][] =>
  result.confirmations.map(({ partition, baseOffset, count }) => [partition, baseOffset, count])

/** Lets the virtual time run until the promise settles. */
async function run<T>(clock: VirtualClock, promise: Promise<T>, mostMs = 600_000): Promise<T> {
  let settled = false
  const watched = promise.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let waited = 0; !settled; waited += 50) {
    assert.ok(waited <= mostMs, `nothing settled within ${mostMs} ms`)
    await clock.advance(50)
  }
  return await watched
}

function failing(fates: readonly Fate[]): (append: number) => Fate {
  return (append) => fates[append] ?? {}
}

test("an awaited send goes out in the same turn and tells its offset", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer()
  await producer.init()
  assert.deepEqual(offsets(await producer.send(bytes("a"))), [[0, 0n, 1]])
  assert.deepEqual(offsets(await producer.send(bytes("b"))), [[0, 1n, 1]])
  assert.deepEqual(backend.texts("t"), ["a", "b"])
  await clock.advance(0)
  assert.equal(clock.timers, 0)
})

test("a thousand sends of one turn are one request, in order", async () => {
  const { backend, topic } = rig({ partitions: 4 })
  const producer = topic.producer()
  await producer.init()
  const results = await Promise.all(numbered(1000).map((text) => producer.send(bytes(text))))
  assert.equal(backend.appends.length, 1)
  const partition = backend.appends[0]?.partition as number
  assert.deepEqual(backend.texts("t", partition), numbered(1000))
  assert.deepEqual(offsets(results[999] as SendResult), [[partition, 999n, 1]])
  await producer.send(bytes("next"))
  assert.equal(backend.appends[1]?.partition, (partition + 1) % 4)
})

test("sends that wait behind a request in flight share the next one", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = () => ({ delayMs: 10 })
  const producer = topic.producer()
  await producer.init()
  const sends = [producer.send(bytes("r0"))]
  await clock.advance(1)
  for (let i = 1; i <= 7; i++) {
    sends.push(producer.send(bytes(`r${i}`)))
    await clock.advance(1)
  }
  await run(clock, Promise.all(sends))
  assert.deepEqual(
    backend.appends.map(({ count }) => count),
    [1, 7],
  )
  assert.deepEqual(backend.texts("t"), numbered(8))
})

test("full batches of one partition are pipelined up to the backend's limit", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = () => ({ delayMs: 10 })
  const producer = topic.producer({ batchLength: 10 })
  await producer.init()
  const sends = Promise.all(numbered(100).map((text) => producer.send(bytes(text))))
  await run(clock, sends)
  assert.equal(backend.mostInFlight, 5)
  assert.equal(backend.appends.length, 10)
  assert.deepEqual(backend.texts("t"), numbered(100))
})

test("a batch goes out in requests, confirmed one by one", async () => {
  const { backend, topic } = rig()
  const producer = topic.producer({ batchLength: 100 })
  const result = await producer.sendBatch(numbered(250).map(bytes))
  assert.deepEqual(offsets(result), [
    [0, 0n, 100],
    [0, 100n, 100],
    [0, 200n, 50],
  ])
  assert.deepEqual(backend.texts("t"), numbered(250))
  assert.deepEqual(
    backend.appends.map(({ sequence }) => sequence),
    [0, 100, 200],
  )
})

test("A-22: an empty batch settles at once, without a request", async () => {
  const { backend, topic } = rig()
  const producer = topic.producer()
  assert.deepEqual(await producer.sendBatch([]), { confirmations: [] })
  assert.deepEqual(await topic.publishBatch().send(), { confirmations: [] })
  assert.equal(backend.appends.length, 0)
  assert.equal(backend.describes, 0)
})

test("a failed request of a batch stops those behind it; all from it on is unconfirmed, with id and partition", async () => {
  const { backend, topic, clock } = rig({ partitions: 2 })
  backend.fate = failing([{}, { outcome: "refuse", error: new DiskFullError("no room", { retryable: false }) }])
  const producer = topic.producer({ batchLength: 2 })
  const error = await run(clock, failure(producer.sendBatch(numbered(7).map(bytes))))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.kind, "publish-failed")
  assert.equal(error.outcome, "rejected")
  assert.ok(error.publishCause() instanceof DiskFullError)
  assert.deepEqual(
    error.committed.map(({ count }) => count),
    [2],
  )
  assert.deepEqual(
    error.unconfirmed.map(({ payload }) => Buffer.from(payload as Uint8Array).toString()),
    numbered(5, 2),
  )
  for (const record of error.unconfirmed) {
    assert.equal(typeof record.id, "bigint")
    assert.equal(typeof record.partition, "number")
  }
  assert.match(error.message, /2 confirmed, 5 unconfirmed: no room/)
  assert.equal(backend.appends.length, 2, "nothing behind the failed request went out")
  const resent = await run(clock, topic.batch(error.unconfirmed))
  assert.equal(resent.duplicates, undefined)
  await producer.send(bytes("after"))
})

test("requests of one call follow each other at once on one partition; a failed one takes those in flight with it", async () => {
  const { backend, topic, clock } = rig({ partitions: 2 })
  backend.fate = () => ({ delayMs: 5 })
  const producer = topic.producer({ batchLength: 10 })
  const sent = await run(clock, producer.sendBatch(numbered(100).map(bytes), { partition: 0 }))
  assert.equal(backend.mostInFlight, 5)
  assert.equal(sent.confirmations.length, 10)
  assert.deepEqual(backend.texts("t", 0), numbered(100))
  const lasting = new DiskFullError("no room", { retryable: false })
  backend.fate = (append) => ({ delayMs: 5, ...(append === 11 ? { outcome: "refuse", error: lasting } : {}) })
  const failed = failure(producer.sendBatch(numbered(100, 100).map(bytes), { partition: 0 }))
  const behind = producer.send(bytes("behind"), { partition: 0 })
  const error = await run(clock, failed)
  await run(clock, behind)
  assert.ok(error instanceof PublishFailedError)
  assert.deepEqual(
    error.committed.map(({ baseOffset, count }) => [baseOffset, count]),
    [[100n, 10]],
  )
  assert.deepEqual(
    error.unconfirmed.map(({ payload }) => Buffer.from(payload as Uint8Array).toString()),
    numbered(90, 110),
  )
  assert.deepEqual(backend.texts("t", 0), [...numbered(110), "behind"])
})

test("requests of one call in balance wait for each other", async () => {
  const { backend, topic, clock } = rig({ partitions: 4 })
  backend.fate = () => ({ delayMs: 5 })
  await run(clock, topic.producer({ batchLength: 10 }).sendBatch(numbered(80).map(bytes)))
  assert.equal(backend.mostInFlight, 1)
  assert.equal(backend.appends.length, 8)
})

test("a temporary failure is retried with doubling waits, in order", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ outcome: "refuse" }, { outcome: "refuse" }, { outcome: "refuse" }])
  const producer = topic.producer({ retryBackoffMs: 100 })
  await producer.init()
  const times: number[] = []
  const fate = backend.fate
  backend.fate = (append, partition) => {
    times.push(clock.monotonicMs())
    return fate(append, partition)
  }
  const sends = [producer.send(bytes("r0"))]
  await clock.advance(1)
  sends.push(producer.send(bytes("r1")))
  await run(clock, Promise.all(sends))
  assert.deepEqual(times, [0, 100, 300, 700, 700])
  assert.deepEqual(backend.texts("t"), ["r0", "r1"])
  assert.equal(producer.statistics.retries, 3)
})

test("retries used up: the send fails as its last attempt did, and the producer goes on", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ outcome: "refuse" }, { outcome: "refuse" }])
  const producer = topic.producer({ retries: 1 })
  const error = await run(clock, failure(producer.send(bytes("lost"))))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.retryable, true)
  assert.equal(error.outcome, "rejected")
  await producer.send(bytes("after"))
  assert.deepEqual(backend.texts("t"), ["after"])
  assert.deepEqual(
    backend.appends.map(({ sequence }) => sequence),
    [0, 0, 0],
    "the number of a refused batch is used again",
  )
  assert.equal(backend.identifies, 1)
})

test("A-30: a lost acknowledgement is resent under the same number and stored once", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ outcome: "lose" }])
  const producer = topic.producer()
  const result = await run(clock, producer.send(bytes("once")))
  assert.deepEqual(offsets(result), [[0, 0n, 1]])
  assert.equal(result.duplicates, undefined)
  assert.deepEqual(backend.texts("t"), ["once"])
})

test("A-30: an answer that never comes has the outcome unknown; the epoch is raised before anything else goes out", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ outcome: "silence" }])
  const producer = topic.producer({ onUnknown: "fail" })
  const sends = [failure(producer.send(bytes("r0")))]
  await clock.advance(1)
  const second = producer.send(bytes("r1"))
  const [error] = await run(clock, Promise.all(sends))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.outcome, "unknown")
  assert.ok(error.publishCause() instanceof TimeoutError)
  assert.equal(error.unconfirmed.length, 1)
  assert.equal(typeof error.unconfirmed[0]?.id, "bigint")
  await run(clock, second)
  assert.deepEqual(backend.texts("t"), ["r0", "r1"])
  assert.deepEqual(
    backend.appends.map(({ sequence }) => sequence),
    [0, 0],
  )
  assert.equal(backend.identifies, 2)
  const resent = await run(clock, topic.batch(error.unconfirmed))
  assert.equal(resent.duplicates, 1)
  assert.deepEqual(backend.texts("t"), ["r0", "r1"])
})

test("a late confirmation counts, also when the attempt was given up", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ answerMs: 60_100 }, { outcome: "silence" }])
  const producer = topic.producer()
  const result = await run(clock, producer.send(bytes("slow")), 70_000)
  assert.deepEqual(offsets(result), [[0, 0n, 1]])
  assert.deepEqual(backend.texts("t"), ["slow"])
})

test("past the backend's window an unknown outcome is not resent", async () => {
  const manifest = fakeManifest({
    dedup: "idWindow",
    identityScope: "none",
    inFlight: { offsets: 1, stored: 1 },
    windowMs: 1000,
  })
  const { backend, topic, clock } = rig({ manifest })
  backend.fate = failing([
    { outcome: "lose", answerMs: 600 },
    { outcome: "lose", answerMs: 600 },
  ])
  const producer = topic.producer({ retries: 10 })
  const error = await run(clock, failure(producer.send(bytes("r"))))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.outcome, "unknown")
  assert.equal(backend.appends.length, 2)
})

test("a backend without deduplication gets one request at a time for a partition", async () => {
  const manifest = fakeManifest({ dedup: "none", identityScope: "none", inFlight: { offsets: 1, stored: 1 } })
  const { backend, topic, clock } = rig({ manifest })
  backend.fate = () => ({ delayMs: 5 })
  const producer = topic.producer({ batchLength: 10 })
  await run(clock, Promise.all(numbered(50).map((text) => producer.send(bytes(text)))))
  assert.equal(backend.mostInFlight, 1)
  assert.deepEqual(backend.texts("t"), numbered(50))
  assert.equal(backend.identifies, 0)
  assert.throws(() => topic.producer({ idempotent: true }), UnsupportedError)
})

test("a batch that the backend finds too large is split, in order, down to single records", async () => {
  const { backend, topic, clock } = rig()
  backend.largestBatch = 3
  const producer = topic.producer()
  const result = await run(clock, producer.sendBatch(numbered(10).map(bytes)))
  assert.deepEqual(backend.texts("t"), numbered(10))
  const covered = result.confirmations.reduce((sum, { count }) => sum + count, 0)
  assert.equal(covered, 10)
  backend.largestBatch = 0
  const error = await run(clock, failure(producer.send(bytes("too large"))))
  assert.ok(error instanceof PublishFailedError)
  assert.ok(error.publishCause() instanceof RecordTooLargeError)
  backend.largestBatch = 100
  await run(clock, producer.send(bytes("after")))
})

test("a producer that the backend has forgotten goes on under a new epoch", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer({ retries: 0 })
  await producer.send(bytes("r0"))
  backend.forgetProducers()
  await run(clock, producer.send(bytes("r1")))
  assert.deepEqual(backend.texts("t"), ["r0", "r1"])
})

test("a producer that was fenced goes on with a fresh identity", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer({ retries: 0 })
  await producer.send(bytes("r0"))
  backend.fence(1n)
  await run(clock, producer.send(bytes("r1")))
  await run(clock, producer.send(bytes("r2")))
  assert.deepEqual(backend.texts("t"), ["r0", "r1", "r2"])
})

test("A-29: a deleted topic fails for itself alone, and works again once it is recreated", async () => {
  const { backend, topic, client, clock } = rig()
  const other = client.stream("s").topic("other")
  backend.create("other")
  const producer = topic.producer()
  await producer.send(bytes("r0"))
  backend.delete("t")
  assert.ok((await run(clock, failure(producer.send(bytes("gone"))))) instanceof NotFoundError)
  await run(clock, producer.sendTo(other, bytes("fine")))
  assert.ok((await run(clock, failure(producer.send(bytes("still gone"))))) instanceof NotFoundError)
  assert.ok(!backend.topics.has("t"), "a topic that somebody deleted is not created again")
  backend.create("t", 2)
  await run(clock, producer.send(bytes("back"), { partition: 1 }))
  assert.deepEqual(backend.texts("t", 1), ["back"])
})

for (const [deletedAfterMs, inNew] of [
  [1, 40],
  [7, 15],
] as const) {
  test(`A-29: records on their way to a topic that is recreated go to the new one, once, in order (${deletedAfterMs} ms)`, async () => {
    const { backend, topic, clock } = rig({ partitions: 2 })
    backend.fate = () => ({ delayMs: 5 })
    const producer = topic.producer({ batchLength: 5 })
    await producer.init()
    const sends = numbered(60).map((text, i) => producer.send(bytes(text), { partition: i % 2 }))
    await clock.advance(deletedAfterMs)
    backend.delete("t")
    backend.create("t", 2)
    await clock.advance(1)
    sends.push(...numbered(20, 60).map((text, i) => producer.send(bytes(text), { partition: i % 2 })))
    await run(clock, Promise.all(sends))
    for (const partition of [0, 1]) {
      const all = numbered(80).filter((_, i) => i % 2 === partition)
      assert.deepEqual(backend.texts("t", partition), all.slice(-inNew))
    }
  })
}

test("a recreated topic with other partitions: keys move with the count, a partition that is gone fails its records", async () => {
  const { backend, topic, clock } = rig({ partitions: 4 })
  backend.fate = () => ({ delayMs: 5 })
  const producer = topic.producer()
  await producer.init()
  const keys = numbered(20)
  const sends = keys.map((key) => producer.send(bytes(key), { key }))
  const lost = failure(producer.sendBatch([bytes("x"), bytes("y")], { partition: 3 }))
  await clock.advance(1)
  backend.create("t", 2)
  await run(clock, Promise.all([...sends, lost]))
  for (const key of keys) {
    const home = murmur2(bytes(key)) % 2
    assert.ok(backend.texts("t", home).includes(key))
  }
  const error = await lost
  assert.ok(error instanceof PublishFailedError)
  assert.ok(error.publishCause() instanceof InvalidError)
  assert.match(error.message, /partition 3 of topic "s\/t" is out of range: the topic has 2 partitions/)
  assert.equal(error.unconfirmed.length, 2)
})

test("a new incarnation never takes a fresh record for an old one: its sequences begin under another epoch", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer()
  await producer.send(bytes("old"))
  backend.replaceKeepingProducers("t")
  await run(clock, producer.send(bytes("new")))
  assert.deepEqual(backend.texts("t"), ["new"])
})

test("a topic that is replaced again and again fails the records that were on their way twice, and nothing hangs", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer()
  await producer.send(bytes("r0"))
  backend.fate = () => {
    backend.create("t")
    return { delayMs: 1 }
  }
  const error = await run(clock, failure(producer.send(bytes("r1"))))
  assert.ok(error instanceof NotFoundError)
  backend.fate = () => ({})
  await run(clock, producer.send(bytes("r2")))
  assert.deepEqual(backend.texts("t"), ["r2"])
})

test("one partition's next epoch waits for what the others still have on their way", async () => {
  const { backend, topic, clock } = rig({ partitions: 2 })
  const tries = [0, 0]
  backend.fate = (_, partition) => {
    const attempt = (tries[partition] as number)++
    if (partition === 0) return { outcome: attempt < 3 ? "vanish" : "store" }
    return { outcome: attempt < 2 ? "lose" : "store" }
  }
  const producer = topic.producer({ retries: 2, retryBackoffMs: 100 })
  await producer.init()
  const unknown = failure(producer.send(bytes("a0"), { partition: 0 }))
  await clock.advance(250)
  const resent = producer.send(bytes("b0"), { partition: 1 })
  await clock.advance(60)
  assert.ok((await unknown) instanceof PublishFailedError)
  const next = producer.send(bytes("a1"), { partition: 0 })
  await run(clock, Promise.all([resent, next]))
  assert.deepEqual(backend.texts("t", 0), ["a1"])
  assert.deepEqual(backend.texts("t", 1), ["b0"])
})

test("a writer that fails refuses the call, or the rest of it; the producer goes on", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer()
  await producer.init()
  backend.breakWritersAfter = 0
  assert.ok((await failure(producer.send(bytes("a")))) instanceof RecordTooLargeError)
  backend.breakWritersAfter = 2
  const error = await run(clock, failure(producer.sendBatch(numbered(5).map(bytes))))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.committed[0]?.count, 2)
  assert.equal(error.unconfirmed.length, 3)
  backend.breakWritersAfter = Number.POSITIVE_INFINITY
  await run(clock, producer.send(bytes("after")))
  assert.deepEqual(backend.texts("t"), ["r0", "r1", "after"])
})

test("an identity that cannot be had fails the sends within the retries, and the next send asks again", async () => {
  const { backend, topic, clock } = rig()
  backend.failIdentify = () => new ConnectionError("down")
  const producer = topic.producer({ retries: 1 })
  const error = await run(clock, failure(producer.send(bytes("a"))))
  assert.ok(error instanceof PublishFailedError)
  assert.ok(error.publishCause() instanceof ConnectionError)
  backend.failIdentify = undefined
  await run(clock, producer.send(bytes("b")))
  assert.deepEqual(backend.texts("t"), ["b"])
})

test("the topic is created at the first use, unless that is turned off", async () => {
  const { backend, topic, client } = rig({ create: false })
  await topic.producer({ partitions: 3, expireAfterMs: 1000 }).send(bytes("a"))
  assert.equal(backend.topics.get("t")?.partitions.length, 3)
  assert.equal(backend.topics.get("t")?.description.expireAfterMs, 1000)
  const off = client.stream("s").topic("off").producer({ createStream: false, createTopic: false })
  assert.ok((await failure(off.send(bytes("a")))) instanceof NotFoundError)
  assert.ok((await failure(off.init())) instanceof NotFoundError)
  const noStream = client.stream("missing").topic("off").producer({ createStream: false })
  assert.ok((await failure(noStream.send(bytes("a")))) instanceof NotFoundError)
  assert.ok(
    (await failure(client.stream("s").topic("off").publish().payload(bytes("a")).send())) instanceof NotFoundError,
  )
})

test("a partition that was added since is found; one that does not exist is refused with the count", async () => {
  const { backend, topic } = rig({ partitions: 2 })
  const producer = topic.producer()
  await producer.send(bytes("a"), { partition: 1 })
  backend.grow("t", 1)
  assert.deepEqual(offsets(await producer.send(bytes("b"), { partition: 2 })), [[2, 0n, 1]])
  const error = await failure(producer.send(bytes("c"), { partition: 7 }))
  assert.ok(error instanceof InvalidError)
  assert.equal(error.message, 'partition 7 of topic "s/t" is out of range: the topic has 3 partitions (0 to 2)')
  await producer.send(bytes("d"))
})

test("a call that waits for a partition to be found lets no later one pass", async () => {
  const { backend, topic } = rig({ partitions: 2 })
  const producer = topic.producer()
  await producer.init()
  backend.grow("t", 1)
  const mixed = producer.sendBatch([
    { payload: bytes("a"), partition: 0 },
    { payload: bytes("b"), partition: 2 },
  ])
  await Promise.all([mixed, producer.send(bytes("c"), { partition: 0 })])
  assert.deepEqual(backend.texts("t", 0), ["a", "c"])
})

test("confirmations are in the order of the call, whichever arrives first", async () => {
  const { backend, topic, clock } = rig({ partitions: 3 })
  backend.fate = (_, partition) => ({ delayMs: 30 - partition * 10 })
  const records = [2, 0, 1, 2].map((partition) => ({ payload: bytes(`r${partition}`), partition }))
  const sent = await run(clock, topic.producer().sendBatch(records))
  assert.deepEqual(offsets(sent), [
    [2, 0n, 2],
    [0, 0n, 1],
    [1, 0n, 1],
  ])
})

test("routing: explicit, partitioner, key, balance; a record's own place wins over its call's", async () => {
  const { backend, topic } = rig({ partitions: 4 })
  const keyed = topic.producer({ routing: { kind: "key", key: "k" } })
  const home = (await keyed.send(bytes("a"))).confirmations[0]?.partition as number
  await keyed.send(bytes("b"), { partition: (home + 1) % 4 })
  assert.equal(Buffer.from(backend.records("t", home)[0]?.key as Uint8Array).toString(), "k")
  assert.equal(backend.records("t", (home + 1) % 4)[0]?.key, null)
  const own = await keyed.sendBatch([bytes("c"), { payload: bytes("d"), partition: (home + 2) % 4 }])
  assert.deepEqual(new Set(own.confirmations.map(({ partition }) => partition)), new Set([home, (home + 2) % 4]))
  const chosen: string[] = []
  const custom = topic.producer({
    partitioner: (_, { payload }, partitions) => {
      chosen.push(Buffer.from(payload as Uint8Array).toString())
      return partitions - 1
    },
  })
  assert.equal((await custom.send(bytes("e"), { key: "k" })).confirmations[0]?.partition, 3)
  assert.equal((await custom.send(bytes("f"), { partition: 0 })).confirmations[0]?.partition, 0)
  assert.deepEqual(chosen, ["e"])
})

test("balance: each request and each chunk goes to the next partition", async () => {
  const { backend, topic } = rig({ partitions: 3 })
  const producer = topic.producer({ batchLength: 10 })
  await producer.sendBatch(numbered(30).map(bytes))
  assert.deepEqual(new Set(backend.appends.map(({ partition }) => partition)), new Set([0, 1, 2]))
  for (let i = 0; i < 6; i++) await producer.send(bytes("x"))
  for (const partition of [0, 1, 2]) assert.equal(backend.texts("t", partition).length, 12)
})

const refused: readonly [string, (topic: Topic) => unknown, RegExp][] = [
  ["text payload", (t) => t.producer().send("text" as never), /must be a Uint8Array, or null .* not "text"/],
  ["no payload", (t) => t.producer().send(undefined as never), /not undefined/],
  [
    "key and partition",
    (t) => t.producer().send(bytes("a"), { key: "k", partition: 0 }),
    /key and partition 0 exclude/,
  ],
  ["empty key", (t) => t.producer().send(bytes("a"), { key: "" }), /must not be empty/],
  ["long key", (t) => t.producer().send(bytes("a"), { key: "k".repeat(101) }), /101 bytes; at most 100/],
  ["long payload", (t) => t.producer().send(new Uint8Array(1001)), /1001 bytes; at most 1000/],
  [
    "reserved header",
    (t) => t.producer().send(bytes("a"), { headers: { "millrace-ct": "x" } }),
    /"millrace-ct" is reserved/,
  ],
  [
    "unknown option",
    (t) => t.producer({ bathLength: 1 } as never),
    /unknown option "bathLength". Known options: background, batchLength/,
  ],
  ["negative retries", (t) => t.producer({ retries: -1 }), /"retries" is -1; it must be a whole number from 0/],
  ["no backoff", (t) => t.producer({ retryBackoffMs: 0 }), /above 0, at most 2147483647/],
  ["fraction", (t) => t.producer({ batchLength: 1.5 }), /whole number from 1/],
  ["both expiries", (t) => t.producer({ expireAfterMs: 1, neverExpire: true }), /exclude each other/],
  ["both sizes", (t) => t.ensure(1, { maxTopicBytes: 1n, unlimitedTopicSize: true }), /exclude each other/],
  ["negative size", (t) => t.ensure(1, { maxTopicBytes: -1n }), /-1n; it must be a bigint of bytes above 0/],
  ["too many partitions", (t) => t.ensure(1001), /1001 partitions are not possible: a topic has 1 to 1000/],
  ["routing kind", (t) => t.producer({ routing: { kind: "random" } as never }), /routing "random" is not known/],
  ["partitioner out of range", (t) => t.producer({ partitioner: () => 9 }).send(bytes("a")), /answer 9 .*4 partitions/],
  [
    "partitioner throws",
    (t) => t.producer({ partitioner: thrower }).send(bytes("a")),
    /the partitioner failed: no idea/,
  ],
  ["record of a batch", (t) => t.producer().sendBatch([bytes("a"), { payload: 7 } as never]), /^record #1: /],
  ["send option", (t) => t.producer().send(bytes("a"), { partiton: 1 } as never), /send: unknown option "partiton"/],
  ["id", (t) => t.producer().send(bytes("a"), { id: 0n }), /message id 0/],
  ["header block", (t) => t.producer().send(bytes("a"), { headers: many(20) }), /header block .* at most 500/],
]

function thrower(): number {
  throw new Error("no idea")
}

function many(count: number): [string, HeaderValue][] {
  return Array.from({ length: count }, (_, i) => [`h${i}`, HeaderValue.raw(new Uint8Array(50))])
}

for (const [name, call, message] of refused) {
  test(`refused before anything is sent: ${name}`, async () => {
    const { backend, topic } = rig({ partitions: 4 })
    const error = await failure((async () => call(topic))())
    assert.ok(error instanceof InvalidError || error instanceof RecordTooLargeError, String(error))
    assert.match(error.message, message)
    assert.equal(backend.appends.length, 0)
  })
}

test("linger: the least gap between sequential sends, and no delay for one that is alone", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer({ lingerMs: 20 })
  const times: number[] = []
  backend.fate = () => {
    times.push(clock.monotonicMs())
    return {}
  }
  await producer.init()
  await producer.send(bytes("r0"))
  await run(clock, Promise.all([producer.send(bytes("r1")), producer.send(bytes("r2"))]))
  assert.deepEqual(times, [0, 20])
  await clock.advance(100)
  const now = clock.monotonicMs()
  await producer.send(bytes("r3"))
  assert.equal(times.at(-1), now)
  assert.deepEqual(backend.texts("t"), numbered(4))
})

test("shutdown waits for what is under way, then refuses sends", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ outcome: "refuse" }])
  const producer = topic.producer()
  const send = producer.send(bytes("r0"))
  const ended = producer.shutdown()
  assert.ok((await failure(producer.send(bytes("late")))) instanceof ClosedError)
  await run(clock, ended)
  await send
  await producer.shutdown()
  assert.deepEqual(backend.texts("t"), ["r0"])
  assert.equal(clock.timers, 0)
})

test("shutdown at its deadline names what is not confirmed, and rejects it", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ outcome: "silence" }])
  const producer = topic.producer()
  await producer.init()
  const first = failure(producer.send(bytes("r0")))
  await clock.advance(1)
  const rest = [failure(producer.send(bytes("r1"))), failure(producer.sendBatch([bytes("r2"), bytes("r3")]))]
  const error = await run(clock, failure(producer.shutdown({ timeoutMs: 3000 })))
  assert.ok(error instanceof TimeoutError)
  assert.match(
    error.message,
    /producer of topic "s\/t": 4 records of 3 sends had no confirmation 3000 ms after its shutdown began/,
  )
  const outcomes = await Promise.all([first, ...rest])
  assert.ok(outcomes.every((outcome) => outcome instanceof PublishFailedError))
  assert.deepEqual(
    outcomes.map((outcome) => (outcome as PublishFailedError).outcome),
    ["unknown", "rejected", "rejected"],
  )
  assert.equal(clock.timers, 0)
})

test("shutdown gives up a preparation that hangs", async () => {
  const { backend, topic, clock } = rig()
  backend.failDescribe = () => new ConnectionError("down")
  const producer = topic.producer({ retries: 1000 })
  const send = failure(producer.send(bytes("r0")))
  await clock.advance(1)
  assert.ok((await run(clock, failure(producer.shutdown({ timeoutMs: 500 })))) instanceof TimeoutError)
  assert.ok((await send) instanceof TimeoutError)
  await clock.advance(1)
  assert.equal(clock.timers, 0)
})

test("a client's close drains its producers and closes the session", async () => {
  const { backend, topic, client, clock } = rig()
  backend.fate = () => ({ delayMs: 30 })
  const producer = topic.producer()
  await producer.init()
  const sends = Promise.all(numbered(10).map((text) => producer.send(bytes(text))))
  const published = topic.publish().payload(bytes("p")).send()
  await run(clock, client.close())
  await Promise.all([sends, published])
  assert.equal(backend.isClosed, true)
  await client.close()
  assert.ok((await failure(producer.send(bytes("late")))) instanceof ClosedError)
  assert.ok((await failure(topic.publish().payload(bytes("late")).send())) instanceof ClosedError)
  assert.ok((await failure(topic.describe())) instanceof ClosedError)
  assert.throws(() => topic.producer(), ClosedError)
  assert.equal(clock.timers, 0)
})

test("flush settles when every send before it has, well or not", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([
    { outcome: "refuse", error: new DiskFullError("no room", { retryable: false }), answerMs: 10 },
  ])
  const producer = topic.producer()
  let settled = 0
  const count = (): number => settled++
  producer.send(bytes("a")).then(count, count)
  await clock.advance(1)
  producer.send(bytes("b")).then(count, count)
  await run(clock, producer.flush())
  assert.equal(settled, 2)
})

test("statistics count calls and records", async () => {
  const { backend, topic, clock } = rig()
  backend.fate = failing([{ delayMs: 3 }, { outcome: "refuse", error: new DiskFullError("no", { retryable: false }) }])
  const producer = topic.producer()
  await run(clock, producer.sendBatch([bytes("ab"), bytes("c")]))
  await failure(producer.send(bytes("d")))
  const { latency, ...counts } = producer.statistics
  assert.equal(counts.submittedRecords, 3)
  assert.equal(counts.submittedPayloadBytes, 4)
  assert.equal(counts.confirmedRecords, 2)
  assert.equal(counts.confirmedPayloadBytes, 3)
  assert.equal(counts.failedCalls, 1)
  assert.equal(latency.samples, 1)
  assert.equal(latency.p50Micros, 4096)
  assert.equal(latency.p99Micros, undefined)
})

test("publish builds one record with its metadata", async () => {
  const { backend, topic } = rig()
  await topic
    .publish()
    .json({ a: 1 })
    .key("k")
    .id(7n)
    .timestampMicros(5n)
    .header("h", HeaderValue.int32(3))
    .schemaId(9)
    .index("user", "u1")
    .send()
  const [record] = backend.records("t")
  assert.equal(Buffer.from(record?.payload as Uint8Array).toString(), '{"a":1}')
  assert.equal(record?.id, 7n)
  assert.equal(record?.timestampMicros, 5n)
  assert.deepEqual(
    [...(record?.headers ?? [])].map(([name, value]) => [name, value.kind]),
    [
      ["h", "int32"],
      ["millrace-ct", "uint8"],
      ["millrace-sid", "uint32"],
      ["millrace-idx.user", "string"],
    ],
  )
})

test("publishBatch merges headers and metadata, and names a bad record", async () => {
  const { backend, topic } = rig()
  const batch = topic.publishBatch().key("k").header("b", "1").index("x", "batch").index("y", "batch")
  batch.add(bytes("a")).addJson({ j: 1 })
  batch.addRecord({ payload: bytes("c"), headers: { r: "2" }, metadata: { index: { y: "own" } } })
  assert.deepEqual(offsets(await batch.send()), [[0, 0n, 3]])
  const names = backend.records("t").map(({ headers }) => [...headers].map(([name, value]) => `${name}=${value.value}`))
  assert.deepEqual(names, [
    ["b=1", "millrace-idx.x=batch", "millrace-idx.y=batch"],
    ["b=1", "millrace-ct=1", "millrace-idx.x=batch", "millrace-idx.y=batch"],
    ["b=1", "r=2", "millrace-idx.x=batch", "millrace-idx.y=own"],
  ])
  const bad = topic.publishBatch().add(bytes("fine")).addJson(1n)
  const error = await failure(bad.send())
  assert.ok(error instanceof InvalidError)
  assert.match(error.message, /^record #1: .*JSON/)
  assert.equal(backend.appends.length, 1)
})

test("options of publish are the connection's", async () => {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t")
  const options: ProducerOptions = {}
  assert.deepEqual(options, {})
  const client = openClient(backend.session, { publishRetries: 0, stream: "s" }, { clock, random: seededRandom(1) })
  backend.fate = failing([{ outcome: "refuse" }])
  assert.ok((await failure(client.topic("t").publish().payload(bytes("a")).send())) instanceof PublishFailedError)
  assert.equal(backend.appends.length, 1)
})

async function failure(promise: Promise<unknown>): Promise<unknown> {
  try {
    const value = await promise
    return new Error(`succeeded with ${JSON.stringify(value, (_, v) => (typeof v === "bigint" ? `${v}n` : v))}`)
  } catch (error) {
    return error
  }
}
