/** Client, streams and topics as handles: what they make, refuse, share and close. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  ClosedError,
  ConnectionError,
  InvalidError,
  NotFoundError,
  TimeoutError,
  UnsupportedError,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { FakeBackend, fakeManifest } from "../producer/fake-backend.test-support.ts"
import { type Client, openClient } from "./client.ts"
import type { ClientOptions } from "./client-options.ts"

function open(
  options: ClientOptions = {},
  manifest = fakeManifest(),
): { client: Client; backend: FakeBackend; clock: VirtualClock } {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock, manifest)
  return { client: openClient(backend.session, options, { clock, random: seededRandom(3) }), backend, clock }
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

test("ensure makes stream and topic, and changes nothing that exists", async () => {
  const { client, backend } = open()
  const topic = client.stream("new").topic("t")
  backend.streams.delete("s")
  const made = await client.stream("s").topic("t").ensure(3, { durability: "written", deduplicationWindowMs: 0 })
  assert.equal(made.partitions, 3)
  assert.equal(made.durability, "written")
  assert.equal(made.offsetDurability, "synced")
  assert.equal(made.deduplicationWindowMs, 0)
  assert.equal(made.expireAfterMs, undefined)
  assert.deepEqual(await client.stream("s").topic("t").ensure(5), made)
  assert.ok(topic.stream === "new" && topic.name === "t")
})

test("many ensures at once make one topic; a race that is lost is a success", async () => {
  const { client, backend } = open()
  const topic = client.stream("s").topic("t")
  const infos = await Promise.all(Array.from({ length: 20 }, () => topic.ensure(2)))
  for (const info of infos) assert.deepEqual(info, infos[0])
  assert.equal(backend.topics.size, 1)
})

test("where no ids are looked up, topics are made without, and asking for it is refused by name", async () => {
  const manifest = fakeManifest({ idLookup: "none" })
  const { client } = open({}, { ...manifest, offsets: { ...manifest.offsets, durability: ["written"] } })
  const topic = client.stream("s").topic("t")
  for (const options of [{ deduplicateIds: true }, { deduplicationWindowMs: 5 }]) {
    await assert.rejects(topic.ensure(1, options), (error) => {
      const [option = ""] = Object.keys(options)
      return error instanceof UnsupportedError && error.message.includes(option) && error.message.includes("fake log")
    })
  }
  await assert.rejects(topic.ensure(1, { offsetDurability: "synced" }), UnsupportedError)
  const made = await topic.ensure(1, { deduplicateIds: false, deduplicationWindowMs: 0 })
  assert.equal(made.deduplicationWindowMs, 0)
  assert.equal(made.offsetDurability, "written")
})

test("what the backend cannot do is refused by name", async () => {
  const manifest = fakeManifest({ durability: ["synced"] })
  const absent = { supported: false, reason: "it keeps everything", instead: "Trim it by hand" } as const
  const { client } = open({}, { ...manifest, catalog: { ...manifest.catalog, expiry: absent, addPartitions: absent } })
  const topic = client.stream("s").topic("t")
  await assert.rejects(topic.ensure(1, { expireAfterMs: 5 }), (error) => {
    return (
      error instanceof UnsupportedError && /fake log .*expiry: it keeps everything. Trim it by hand/.test(error.message)
    )
  })
  await assert.rejects(topic.ensure(1, { durability: "written" }), UnsupportedError)
  await topic.ensure(1)
  await assert.rejects(topic.addPartitions(1), UnsupportedError)
  await assert.rejects(topic.consumerGroup("g").describe(), UnsupportedError)
})

test("topic() uses the default stream, and says how to set one", async () => {
  const { client } = open({ stream: "s" })
  assert.equal(client.topic("t").stream, "s")
  const bare = open().client
  assert.throws(
    () => bare.topic("t"),
    (error) =>
      error instanceof InvalidError &&
      /needs a stream.*client\.stream\(name\)\.topic\("t"\).*MILLRACE_STREAM/.test(error.message),
  )
  const manifest = fakeManifest()
  const prefixes = open({}, { ...manifest, catalog: { ...manifest.catalog, streams: "prefixes" } }).client
  assert.equal(prefixes.topic("t").stream, "")
  await prefixes.stream("made up").ensure()
})

test("partitions: added within the limit, trimmed where they exist", async () => {
  const { client } = open({}, fakeManifest({}, { partitions: 4 }))
  const topic = client.stream("s").topic("t")
  await topic.ensure(2)
  await topic.addPartitions(1)
  assert.equal((await topic.watermarks()).length, 3)
  await assert.rejects(topic.addPartitions(2), /3 partitions and 2 more are too many: a topic has at most 4/)
  await assert.rejects(topic.addPartitions(0), /0 partitions are not possible/)
  await topic.trim(2, 0n)
  await assert.rejects(
    topic.trim(3, 0n),
    /partition 3 of topic "s\/t" is out of range: the topic has 3 partitions \(0 to 2\)/,
  )
  await assert.rejects(topic.trim(0, 1 as never), /offset 1 is not a bigint/)
})

test("streams and topics are listed when the iteration begins", async () => {
  const { client } = open()
  await client.stream("s").topic("a").ensure()
  const listing = client.stream("s").topics()
  await client.stream("s").topic("b").ensure()
  assert.deepEqual((await collect(listing)).map(({ topic }) => topic).toSorted(), ["a", "b"])
  assert.deepEqual(
    (await collect(client.streams())).map(({ stream }) => stream),
    ["s"],
  )
})

test("concurrent questions about a topic share one request, and forgetting touches one topic", async () => {
  const { client, backend } = open()
  backend.create("t")
  backend.create("u")
  const [t, u] = [client.stream("s").topic("t"), client.stream("s").topic("u")]
  await Promise.all(Array.from({ length: 10 }, () => t.publish().payload(new Uint8Array(1)).send()))
  assert.equal(backend.describes, 1)
  await u.publish().payload(new Uint8Array(1)).send()
  assert.equal(backend.describes, 2)
  await t.describe()
  await u.producer().send(new Uint8Array(1))
  assert.equal(backend.describes, 3)
})

test("a description that failed is not remembered", async () => {
  const { client, backend } = open({ publishRetries: 0 })
  const topic = client.stream("s").topic("t")
  await assert.rejects(topic.publish().payload(new Uint8Array(1)).send(), NotFoundError)
  backend.create("t")
  await topic.publish().payload(new Uint8Array(1)).send()
  backend.failDescribe = () => new ConnectionError("down")
  await assert.rejects(topic.describe(), ConnectionError)
})

test("close is bounded, says what hangs, and closes the session all the same", async () => {
  const { client, backend, clock } = open()
  backend.create("t")
  backend.fate = () => ({ outcome: "silence" })
  const producer = client.stream("s").topic("t").producer()
  const send = producer.send(new Uint8Array(1)).catch((error: unknown) => error)
  await clock.advance(1)
  const closing = client.close({ timeoutMs: 2000 }).catch((error: unknown) => error)
  await clock.advance(2000)
  const error = await closing
  assert.ok(error instanceof TimeoutError)
  assert.match(error.message, /1 record of 1 send had no confirmation 2000 ms after its shutdown began/)
  assert.ok((await send) instanceof Error)
  assert.equal(backend.isClosed, true)
  await clock.advance(0)
  assert.equal(clock.timers, 0)
})

test("a session that does not close is given up at the deadline", async () => {
  const clock = new VirtualClock()
  const session = { ...new FakeBackend(clock).session, close: () => new Promise<void>(() => {}) }
  const client = openClient(session, {}, { clock, random: seededRandom(1) })
  const closing = client.close({ timeoutMs: 100 }).catch((error: unknown) => error)
  await clock.advance(1000)
  assert.match(String(await closing), /did not close within 100 ms/)
  assert.equal(clock.timers, 0)
})

test("after close everything is refused as closed", async () => {
  const { client, backend } = open()
  backend.create("t")
  const topic = client.stream("s").topic("t")
  await client.close()
  await client.close()
  await assert.rejects(topic.ensure(), ClosedError)
  await assert.rejects(topic.describe(), ClosedError)
  await assert.rejects(topic.watermarks(), ClosedError)
  await assert.rejects(topic.purge(), ClosedError)
  await assert.rejects(topic.publish().payload(new Uint8Array(1)).send(), ClosedError)
  await assert.rejects(topic.batch([{ payload: null }]), ClosedError)
  await assert.rejects(topic.consumerGroup("g").consumer(), ClosedError)
  await assert.rejects(collect(client.streams()), ClosedError)
  await assert.rejects(client.stream("s").describe(), ClosedError)
})

const wrongOptions: readonly [unknown, RegExp][] = [
  [{ strem: "s" }, /client: unknown option "strem"/],
  [{ publishTimeoutMs: 0 }, /"publishTimeoutMs" is 0/],
  [{ publishRetries: -1 }, /"publishRetries" is -1/],
  [{ publishRetryBackoffMs: 0 }, /"publishRetryBackoffMs" is 0/],
  [{ stream: "" }, /a stream name must not be empty/],
]

for (const [options, message] of wrongOptions) {
  test(`client options ${JSON.stringify(options)} are refused`, () => {
    assert.throws(
      () => open(options as ClientOptions),
      (error) => error instanceof InvalidError && message.test(error.message),
    )
  })
}
