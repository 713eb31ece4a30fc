/** What a direct producer promises when requests fail: budgets, waits, windows, what it hands back, and identity. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  AuthenticationError,
  type Capability,
  ConnectionError,
  Headers,
  HeaderValue,
  type Manifest,
  type MillraceError,
  UnsupportedError,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { openClient } from "../client/client.ts"
import { FakeBackend, type Fate, fakeManifest } from "./fake-backend.test-support.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { bytes, failed, lasting, numbered, type Rig, refuse, rig, run, text } from "./sending-rig.test-support.ts"

/** The times at which appends went out. */
function timed(rigged: Rig, fate: (append: number) => Fate): number[] {
  const times: number[] = []
  rigged.backend.fate = (append) => {
    times.push(rigged.clock.monotonicMs())
    return fate(append)
  }
  return times
}

test("each request of a batch has retries of its own: those of one are not those of the next", async () => {
  const { backend, topic, clock } = rig({ partitions: 3 })
  const producer = topic.producer({ batchLength: 2, retries: 2, retryBackoffMs: 10 })
  const fates = [refuse, refuse, {}, refuse, refuse, {}, refuse, refuse, {}]
  backend.fate = (append) => fates[append] ?? lasting
  const sent = await run(clock, producer.sendBatch(numbered(6).map(bytes)))
  assert.deepEqual(
    sent.confirmations.map(({ count }) => count),
    [2, 2, 2],
  )
  assert.equal(producer.statistics.retries, 6)
})

test("a request whose own retries are used up fails, whatever those before it had left", async () => {
  const { backend, topic, clock } = rig({ partitions: 3 })
  const producer = topic.producer({ batchLength: 2, retries: 2, retryBackoffMs: 10 })
  backend.fate = (append) => (append < 1 || append > 3 ? {} : refuse)
  const error = await failed(clock, producer.sendBatch(numbered(6).map(bytes)))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.committed.length, 1)
  assert.equal(error.unconfirmed.length, 4)
  assert.equal(backend.appends.length, 4, "one request, and three attempts of the second")
})

test("waits double from retryBackoffMs and stop at 30 seconds", async () => {
  const rigged = rig()
  const producer = rigged.topic.producer({ retries: 6, retryBackoffMs: 7_000 })
  await producer.init()
  const times = timed(rigged, (append) => (append < 6 ? refuse : {}))
  await run(rigged.clock, producer.send(bytes("r")), 500)
  const waits = times.slice(1).map((time, i) => time - (times[i] as number))
  assert.deepEqual(waits, [7_000, 14_000, 28_000, 30_000, 30_000, 30_000])
})

test("the connection's retries and waits hold for a producer that says nothing", async () => {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t")
  const client = openClient(backend.session, {}, { clock, random: seededRandom(1) })
  const producer = client.stream("s").topic("t").producer()
  await producer.init()
  const times: number[] = []
  backend.fate = () => {
    times.push(clock.monotonicMs())
    return refuse
  }
  await failed(clock, producer.send(bytes("r")))
  assert.deepEqual(times, [0, 250, 750, 1750], "3 retries, 250 ms doubled")
})

test("what cannot pass is not tried again", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer({ retries: 5 })
  backend.fate = () => lasting
  const error = await failed(clock, producer.send(bytes("r")))
  assert.equal(error.retryable, false)
  assert.equal(error.outcome, "rejected")
  assert.equal(backend.appends.length, 1)
})

test("no resend of an unknown outcome behind the window that the topic itself has", async () => {
  const manifest = fakeManifest({
    dedup: "idWindow",
    identityScope: "none",
    inFlight: { offsets: 1, stored: 1 },
    windowMs: 120_000,
  })
  const { backend, topic, clock } = rig({ manifest, create: false })
  backend.create("t", 1, { deduplicationWindowMs: 1_000 })
  backend.recognisesIds = true
  backend.fate = () => ({ outcome: "lose", answerMs: 400 })
  const error = await failed(clock, topic.producer({ retries: 100, retryBackoffMs: 50 }).send(bytes("r")))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.outcome, "unknown")
  assert.ok(backend.appends.length >= 2, "within the window it is resent")
  assert.ok(clock.monotonicMs() <= 2_000, `${clock.monotonicMs()} ms`)
  assert.deepEqual(backend.texts("t"), ["r"])
})

test("onUnknown fail: nothing goes out twice, and what was certainly refused is still tried again", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer({ onUnknown: "fail", retryBackoffMs: 10 })
  backend.fate = (append) => (append === 0 ? refuse : append === 1 ? { outcome: "lose" } : {})
  const error = await failed(clock, producer.send(bytes("r")))
  assert.equal(error.outcome, "unknown")
  assert.equal(backend.appends.length, 2)
  assert.deepEqual(backend.texts("t"), ["r"])
})

test("init fails early with the error itself", async () => {
  const { backend, topic, clock } = rig()
  backend.failDescribe = () => new AuthenticationError("the token has expired")
  const error = await failed(clock, topic.producer().init())
  assert.ok(error instanceof AuthenticationError)
  assert.equal(backend.describes, 1)
  backend.failDescribe = undefined
  await topic.producer().init()
})

test("two producers that create one topic at once both succeed, and the later one changes nothing", async () => {
  const { backend, topic, other } = rig({ create: false })
  const [one, two] = [
    topic.producer({ partitions: 2, expireAfterMs: 1_000 }),
    other().producer({ partitions: 3, maxTopicBytes: 9n }),
  ]
  await Promise.all([one.send(bytes("a"), { partition: 0 }), two.send(bytes("b"), { partition: 0 })])
  const made = backend.topics.get("t")?.description
  assert.equal(made?.partitions.length, 2)
  assert.equal(made?.expireAfterMs, 1_000)
  assert.equal(made?.maxBytes, undefined)
  assert.deepEqual(backend.texts("t", 0), ["a", "b"])
  const later = other().producer({ partitions: 7, neverExpire: true, unlimitedTopicSize: true })
  await later.send(bytes("c"), { partition: 0 })
  assert.equal(backend.topics.get("t")?.description, made)
})

const lacking: Capability = { supported: false, reason: "it keeps no times", instead: "Trim by hand." }
for (const [what, options, said] of [
  ["expiry", { expireAfterMs: 1 }, /fake log .*topic expiry.*it keeps no times.*Trim by hand/],
  ["size limits", { maxTopicBytes: 1n }, /fake log .*topic size limits.*it keeps no times.*Trim by hand/],
] as const) {
  test(`a backend that cannot set ${what} refuses them, and takes a producer without`, () => {
    const full = fakeManifest()
    const manifest: Manifest = { ...full, catalog: { ...full.catalog, expiry: lacking, sizeRetention: lacking } }
    const { topic } = rig({ manifest })
    assert.throws(
      () => topic.producer(options),
      (error: Error) => error instanceof UnsupportedError && said.test(error.message),
    )
    topic.producer({ neverExpire: true, unlimitedTopicSize: true })
  })
}

for (const [what, options, said] of [
  ["two sizes", { maxTopicBytes: 1n, unlimitedTopicSize: true }, /"maxTopicBytes" and "unlimitedTopicSize" exclude/],
  ["two expiries", { expireAfterMs: 1, neverExpire: true }, /"expireAfterMs" and "neverExpire" exclude/],
  ["no time to live", { expireAfterMs: 0 }, /"expireAfterMs" is 0; .* above 0/],
  ["no size", { maxTopicBytes: 0n }, /"maxTopicBytes" is 0n/],
  ["no partitions", { partitions: 0 }, /"partitions" is 0; it must be a whole number from 1/],
  ["no batch", { batchLength: 0 }, /"batchLength" is 0; it must be a whole number from 1/],
  ["negative linger", { lingerMs: -1 }, /"lingerMs" is -1/],
  ["endless wait", { retryBackoffMs: 2_147_483_648 }, /at most 2147483647/],
  ["another onUnknown", { onUnknown: "guess" }, /"onUnknown" is "guess"; it must be one of "resend", "fail"/],
  ["partitioner", { partitioner: 3 }, /"partitioner" is 3; it must be a function/],
] as const) {
  test(`refused as an option: ${what}`, () => {
    assert.throws(() => rig().topic.producer(options as never), { kind: "invalid", message: said })
  })
}

test("a partitioner sees topic, record and count of partitions, also of another topic", async () => {
  const { backend, topic } = rig({ partitions: 4 })
  backend.create("away", 2)
  const asked: unknown[] = []
  const producer = topic.producer({
    routing: { kind: "key", key: "own" },
    partitioner: ({ stream, name }, { payload, key, headers }, partitions) => {
      asked.push([stream, name, text(payload), text(key), headers.size, partitions])
      return partitions - 1
    },
  })
  await producer.send(bytes("a"), { key: "k", headers: { h: HeaderValue.int32(1) } })
  await producer.sendBatch([bytes("b")])
  await producer.sendTo({ stream: "s", name: "away" }, bytes("c"))
  assert.deepEqual(asked, [
    ["s", "t", "a", "k", 1, 4],
    ["s", "t", "b", "own", 0, 4],
    ["s", "away", "c", "own", 0, 2],
  ])
  assert.deepEqual(backend.texts("t", 3), ["a", "b"])
  assert.deepEqual(backend.texts("away", 1), ["c"])
})

test("a failure hands records back as their attempts had them, and topic.batch leaves out what had landed", async () => {
  const { backend, topic, clock } = rig({ partitions: 2 })
  const producer = topic.producer({ onUnknown: "fail" })
  await producer.init()
  backend.fate = (_, partition) => ({ outcome: partition === 0 ? "lose" : "vanish" })
  const records = [
    { payload: bytes("landed"), partition: 0, id: 77n, headers: { h: "1" }, timestampMicros: 5n },
    { payload: bytes("lost"), partition: 1 },
    { payload: null, partition: 0 },
  ]
  const error = await failed(clock, producer.sendBatch(records))
  assert.ok(error instanceof PublishFailedError)
  assert.equal(error.outcome, "unknown")
  assert.equal(error.stream, "s")
  assert.equal(error.topic, "t")
  assert.equal(error.retryable, (error.publishCause() as MillraceError).retryable)
  assert.ok(error.publishCause() instanceof ConnectionError)
  assert.equal(error.cause, error.publishCause())
  const back = new Map(error.unconfirmed.map((record) => [text(record.payload), record]))
  assert.equal(back.get("landed")?.id, 77n)
  assert.equal(back.get("landed")?.timestampMicros, 5n)
  assert.ok(back.get("landed")?.headers instanceof Headers)
  assert.equal(back.get("lost")?.partition, 1)
  assert.equal(typeof back.get("lost")?.id, "bigint")
  assert.equal(back.get("")?.payload, null)
  backend.fate = () => ({})
  const again = await run(clock, topic.batch(error.unconfirmed))
  assert.equal(again.duplicates, 2)
  assert.deepEqual(backend.texts("t", 0), ["landed", "null"])
  assert.deepEqual(backend.texts("t", 1), ["lost"])
})

test("after a failure in the midst of five requests in flight all go out again in order, under their numbers", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer({ batchLength: 10, retryBackoffMs: 10 })
  await producer.init()
  backend.fate = (append) => ({ delayMs: 5, ...(append === 2 ? { outcome: "lose" } : {}) })
  const sends = Promise.all(numbered(80).map((one) => producer.send(bytes(one))))
  await run(clock, sends)
  assert.equal(backend.mostInFlight, 5)
  assert.deepEqual(backend.texts("t"), numbered(80))
  const numbers = backend.appends.map(({ sequence }) => sequence)
  assert.deepEqual(numbers.slice(0, 5), [0, 10, 20, 30, 40])
  assert.equal(numbers.filter((number) => number === 20).length, 2, "the resend keeps its number")
  assert.equal(backend.identifies, 1)
})

test("a backend that forgets the producer under way: nothing that was confirmed is doubled, nothing is lost", async () => {
  const { backend, topic, clock } = rig()
  const producer = topic.producer({ batchLength: 5, retryBackoffMs: 10 })
  await producer.init()
  let forgotten = false
  backend.fate = (append) => {
    if (append === 6 && !forgotten) {
      forgotten = true
      backend.forgetProducers()
    }
    return { delayMs: 5 }
  }
  const outcomes = await run(clock, Promise.allSettled(numbered(60).map((one) => producer.send(bytes(one)))))
  assert.ok(forgotten)
  assert.deepEqual([...new Set(outcomes.map(({ status }) => status))], ["fulfilled"])
  assert.deepEqual(backend.texts("t"), numbered(60))
  assert.ok(backend.identifies >= 2, "it goes on under another epoch")
})

test("idempotent: on by itself where resends are recognised by sequence; off, one request at a time and no numbers", async () => {
  const by = rig()
  await by.topic.producer().send(bytes("a"))
  assert.equal(by.backend.appends[0]?.sequence, 0)
  assert.equal(by.backend.identifies, 1)
  const off = rig()
  off.backend.fate = () => ({ delayMs: 5 })
  const producer = off.topic.producer({ idempotent: false, batchLength: 1 })
  await run(off.clock, Promise.all(numbered(4).map((one) => producer.send(bytes(one)))))
  assert.equal(off.backend.mostInFlight, 1)
  assert.equal(off.backend.identifies, 0)
  assert.deepEqual(off.backend.texts("t"), numbered(4))
  const none = rig({
    manifest: fakeManifest({ dedup: "none", identityScope: "none", inFlight: { offsets: 1, stored: 1 } }),
  })
  await none.topic.producer().send(bytes("a"))
  assert.equal(none.backend.appends[0]?.sequence, undefined)
  assert.throws(() => none.topic.producer({ idempotent: true }), { kind: "unsupported", message: /fake log/ })
})

test("without recognition a lost acknowledgement doubles, in order, under the same id", async () => {
  const manifest = fakeManifest({ dedup: "none", identityScope: "none", inFlight: { offsets: 1, stored: 1 } })
  const { backend, topic, clock } = rig({ manifest })
  backend.fate = (append) => (append === 0 ? { outcome: "lose" } : {})
  await run(clock, topic.producer().send(bytes("r0")))
  assert.deepEqual(backend.texts("t"), ["r0", "r0"])
  const [one, two] = backend.records("t")
  assert.equal(one?.id, two?.id)
})

test("compression: what the producer says reaches every batch, what it does not say is the connection's", async () => {
  const manifest = fakeManifest({ compression: ["none", "zstd"] })
  const { backend, topic, clock } = rig({ manifest })
  await topic.producer().send(bytes("a"))
  assert.deepEqual([...backend.compressions], [undefined])
  backend.compressions.clear()
  await topic.producer({ compression: "zstd", batchLength: 1 }).sendBatch([bytes("b"), bytes("c")])
  const background = topic.producer({ compression: "zstd", background: true })
  await background.send(bytes("d"))
  await run(clock, background.shutdown())
  assert.deepEqual([...backend.compressions], ["zstd"])
  assert.throws(() => topic.producer({ compression: "gzip" }), {
    kind: "unsupported",
    message: /"compression": fake log does not compress with "gzip"; it has "none", "zstd"/,
  })
  assert.throws(() => topic.producer({ compression: "brotli" as never }), {
    kind: "invalid",
    message: /"brotli"; it must be one of "none", "gzip", "snappy", "lz4", "zstd"/,
  })
})
