import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import type { MillraceError, Session, TopicSpec } from "@millrace/contract"
import { jetstream, jetstreamManager } from "@nats-io/jetstream"
import { connect, headers, type NatsConnection } from "@nats-io/transport-node"
import { Shop } from "./reader-fixture.test-support.ts"
import { record, sealed } from "./sealed-batch.test-support.ts"

const timeout = 60_000

const spec: TopicSpec = {
  partitions: 1,
  durability: "written",
  offsetDurability: "written",
  deduplicationWindowMs: 120_000,
  deduplicateIds: false,
}

/** A session, and the official client beside it. */
async function pair(t: TestContext): Promise<{ readonly session: Session; readonly nc: NatsConnection } | undefined> {
  const shop = await Shop.open(t)
  if (shop === undefined) return undefined
  const nc = await connect({ servers: shop.server.url.replace("nats://", "") })
  t.after(() => nc.close())
  return { session: await shop.session(), nc }
}

async function failure(call: Promise<unknown>): Promise<MillraceError> {
  return call.then(
    () => assert.fail("the call succeeded"),
    (error) => error as MillraceError,
  )
}

async function readAll(session: Session, topic: { stream: string; topic: string; lineage: string }, count: number) {
  const reader = session.log.openReader({ isolation: "committed" })
  const { stream, topic: name, lineage } = topic
  reader.set([{ stream, topic: name, partition: 0, offset: 0n, lineage }])
  const seen = []
  while (seen.length < count) {
    for (const read of await reader.next({ maxRecords: 100, maxBytes: 1e6, minRecords: 1, maxWaitMs: 5_000 })) {
      if (read.error !== undefined) throw read.error
      for (const batch of read.batches) {
        for (let index = 0; index < batch.count; index++) {
          seen.push({
            offset: batch.offset(index),
            text: Buffer.from(batch.payload(index) ?? []).toString(),
            headers: [...batch.headers(index)].map(([header, value]) => [header, value.kind, value.value]),
            id: batch.id(index),
            key: batch.key(index),
            appended: batch.timestampMicros(index),
          })
        }
      }
    }
  }
  await reader.close()
  return seen
}

test("a JetStream stream that somebody made is a topic of one partition: read, written, listed", {
  timeout,
}, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const manager = await jetstreamManager(nc)
  await manager.streams.add({ name: "ORDERS", subjects: ["orders.new"] })
  const theirs = headers()
  theirs.append("Content-Type", "text/plain")
  await jetstream(nc).publish("orders.new", "theirs", { headers: theirs, msgID: "order-1" })

  const topic = await session.catalog.describeTopic({ stream: "", topic: "ORDERS" })
  assert.equal(topic.partitions.length, 1)
  assert.equal(topic.deduplicationWindowMs, 120_000)
  assert.deepEqual(
    (await session.catalog.listTopics("")).map((one) => one.topic),
    ["ORDERS"],
  )
  assert.deepEqual(await session.catalog.listStreams(), [])
  const results = [
    await session.log.append(sealed(session, topic, ["ours"]), {}),
    await session.log.append(sealed(session, topic, ["one", "by", "one"]), {}),
    await session.log.append(sealed(session, topic, ["stored"]), { confirm: "stored" }),
  ]
  assert.deepEqual(
    results.map(({ base }) => base),
    [1n, 2n, 5n],
  )
  const seen = await readAll(session, topic, 6)
  assert.deepEqual(
    seen.map(({ text }) => text),
    ["theirs", "ours", "one", "by", "one", "stored"],
  )
  assert.deepEqual(seen[0]?.headers, [
    ["Content-Type", "string", "text/plain"],
    ["Nats-Msg-Id", "string", "order-1"],
  ])
  assert.equal(seen[0]?.id, undefined)
  assert.deepEqual(seen[1]?.headers, [])
})

test("a stream of somebody with several subjects or a wildcard is read, and not written", { timeout }, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const manager = await jetstreamManager(nc)
  await manager.streams.add({ name: "MANY", subjects: ["many.*"] })
  await jetstream(nc).publish("many.a", "x")
  const topic = await session.catalog.describeTopic({ stream: "", topic: "MANY" })
  assert.equal((await readAll(session, topic, 1))[0]?.text, "x")
  const error = await failure(session.log.append(sealed(session, topic, ["y"]), {}))
  assert.deepEqual([error.kind, error.outcome], ["invalid", "rejected"])
  assert.match(error.message, /many\.\*/)
})

test("nats.js reads what is written: payload, plain headers, the id as a UUID, the stream's limits", {
  timeout,
}, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const topic = await session.catalog.createTopic(
    { stream: "shop", topic: "a.b" },
    { ...spec, partitions: 2, expireAfterMs: 3_600_000, maxBytes: 2_000_000n, native: { max_msg_size: 500_000 } },
  )
  assert.deepEqual(topic.native, { max_msg_size: 500_000 })
  const { Headers } = await import("@millrace/contract")
  const plain = record("hello", { id: 0x1234n, key: Buffer.from("k"), headers: Headers.from([["trace", "é 1"]]) })
  await session.log.append(sealed(session, topic, [plain, "more"]), {})
  const manager = await jetstreamManager(nc)
  const [info, more] = await manager.streams.list("millrace.shop.a=2eb.>").next()
  assert.ok(info !== undefined && more !== undefined)
  const first = await manager.streams.info("millrace_shop_a=2eb_0")
  assert.equal(first.config.max_age, 3_600_000 * 1e6)
  assert.equal(first.config.max_bytes, 1_000_000)
  assert.equal(first.config.max_msg_size, 500_000)
  assert.equal(first.config.duplicate_window, 120_000 * 1e6)
  const message = await manager.streams.getMessage("millrace_shop_a=2eb_0", { seq: 1 })
  assert.equal(message?.string(), "hello")
  assert.equal(message?.header.get("trace"), "é 1")
  assert.equal(message?.header.get("Nats-Msg-Id"), "00000000-0000-0000-0000-000000001234")
})

test("a topic that was left half made is not there, does not stand in the way, and goes with the next change when it is old", {
  timeout,
}, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const manager = await jetstreamManager(nc)
  const left = { name: "millrace_s_t_1_0000000000dead", subjects: ["millrace.s.t.1.0000000000dead"] }
  await manager.streams.add(left)
  assert.equal((await failure(session.catalog.describeTopic({ stream: "s", topic: "t" }))).kind, "not-found")
  assert.deepEqual(await session.catalog.listTopics("s"), [])
  const made = await session.catalog.createTopic({ stream: "s", topic: "t" }, { ...spec, partitions: 3 })
  assert.equal(made.partitions.length, 3)
  assert.equal((await session.log.append(sealed(session, made, ["x"], 1), {})).base, 0n)
  // A young one may be another creation that is under way.
  assert.equal((await manager.streams.info(left.name)).config.name, left.name)
})

test("creations of many partitions at once leave one topic and nothing else", { timeout }, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const name = { stream: "s", topic: "contested" }
  const outcomes = await Promise.allSettled(
    Array.from({ length: 4 }, () => session.catalog.createTopic(name, { ...spec, partitions: 4 })),
  )
  assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 1)
  const manager = await jetstreamManager(nc)
  const streams = await manager.streams.list("millrace.s.contested.>").next()
  assert.equal(streams.length, 4)
  await session.catalog.deleteTopic(name)
  assert.equal((await manager.streams.list("millrace.s.contested.>").next()).length, 0)
})

test("names and settings that JetStream does not take are refused before anything is made", { timeout }, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session } = both
  const { catalog } = session
  for (const topic of ["a.b", "a b", "*", "millrace_a_b_0"]) {
    const error = await failure(catalog.createTopic({ stream: "", topic }, spec))
    assert.deepEqual([error.kind, error.outcome], ["invalid", "rejected"], topic)
  }
  const error = await failure(
    catalog.createTopic({ stream: "s", topic: "t" }, { ...spec, native: { subjects: ["x"] } }),
  )
  assert.equal(error.kind, "invalid")
  assert.match(error.message, /native\.subjects.*num_replicas/)
  const server = await failure(
    catalog.createTopic({ stream: "s", topic: "t" }, { ...spec, native: { num_replicas: 9 } }),
  )
  assert.equal(server.outcome, "rejected")
  for (const missing of ["a.b", "no such", ""]) {
    const gone = await failure(catalog.describeTopic({ stream: "", topic: missing }))
    assert.equal(gone.kind, "not-found", missing)
  }
})

test("a bare topic is the stream of exactly its name, with as many partitions as wanted", { timeout }, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const topic = await session.catalog.createTopic({ stream: "", topic: "LOGS" }, { ...spec, partitions: 2 })
  const manager = await jetstreamManager(nc)
  assert.deepEqual((await manager.streams.info("LOGS")).config.subjects, [`millrace._.LOGS.0.${topic.lineage}`])
  await session.log.append(sealed(session, topic, ["a"], 1), {})
  const listed = await session.catalog.listTopics("")
  assert.deepEqual(listed, [topic])
  await session.catalog.deleteTopic(topic)
  assert.deepEqual(
    (await manager.streams.list().next()).filter(({ config }) => !config.name.startsWith("KV_")),
    [],
  )
})

test("partitions that are added share the topic's size and its life", { timeout }, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const topic = await session.catalog.createTopic({ stream: "s", topic: "t" }, { ...spec, maxBytes: 900_000n })
  const grown = await session.catalog.addPartitions(topic, 2)
  assert.equal(grown.lineage, topic.lineage)
  assert.equal(grown.maxBytes, 900_000n)
  const manager = await jetstreamManager(nc)
  const streams = await manager.streams.list("millrace.s.t.>").next()
  assert.deepEqual(
    streams.map(({ config }) => config.max_bytes),
    [300_000, 300_000, 300_000],
  )
})

test("the window of duplicates is told as the server keeps it: never longer than records live", {
  timeout,
}, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session, nc } = both
  const place = { stream: "shop", topic: "brief" }
  const made = await session.catalog.createTopic(place, { ...spec, partitions: 2, expireAfterMs: 5_000 })
  assert.equal(made.deduplicationWindowMs, 5_000)
  assert.equal((await session.catalog.describeTopic(place)).deduplicationWindowMs, 5_000)
  assert.equal((await session.catalog.addPartitions(place, 1)).deduplicationWindowMs, 5_000)
  const none = await session.catalog.createTopic(
    { stream: "shop", topic: "none" },
    { ...spec, deduplicationWindowMs: 0 },
  )
  assert.equal(none.deduplicationWindowMs, 0)
  // An administrator may shorten it behind our back.
  const manager = await jetstreamManager(nc)
  await manager.streams.update("millrace_shop_brief_0", { duplicate_window: 1_000_000_000 })
  assert.equal((await session.catalog.describeTopic(place)).deduplicationWindowMs, 1_000)
})

test("topics without a stream make no stream: it is not listed, and cannot be deleted", { timeout }, async (t) => {
  const both = await pair(t)
  if (both === undefined) return
  const { session } = both
  await session.catalog.createTopic({ stream: "", topic: "bare" }, spec)
  await session.catalog.createTopic({ stream: "shop", topic: "orders" }, spec)
  assert.deepEqual(
    (await session.catalog.listStreams()).map(({ stream }) => stream),
    ["shop"],
  )
  const refused = await failure(session.catalog.deleteStream(""))
  assert.equal(refused.kind, "invalid")
  assert.equal(refused.outcome, "rejected")
  assert.equal((await session.catalog.describeTopic({ stream: "", topic: "bare" })).partitions.length, 1)
})

test("a deletion that is cut off behind its first step is in doubt, not refused", { timeout }, async (t) => {
  const shop = await Shop.open(t, { proxied: true })
  if (shop === undefined) return
  const session = await shop.session()
  const place = { stream: "shop", topic: "orders" }
  await session.catalog.createTopic(place, { ...spec, partitions: 2 })
  // What is asked for last, after the topic is gone, only reads.
  shop.server.proxies[0]?.cutBeforeReply({ request: (bytes) => Buffer.from(bytes).includes("STREAM.LIST") })
  const cut = await failure(session.catalog.deleteTopic(place))
  assert.deepEqual([cut.kind, cut.outcome, cut.retryable], ["connection", "unknown", true])
  const other = await shop.directSession()
  assert.equal((await failure(other.catalog.describeTopic(place))).kind, "not-found")
})
