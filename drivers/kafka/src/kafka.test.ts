/** What only a real broker can show, beyond what the conformance suite asks of every driver. */
import assert from "node:assert/strict"
import { after, before, describe, type TestContext, test } from "node:test"
import {
  type ConnectionChange,
  Headers,
  MillraceError,
  type SealedBatch,
  type Session,
  type TopicDescription,
  type TopicSpec,
} from "@millrace/contract"
import { type Server, serverNeed, startKafka } from "@millrace/servers"
import { kafkaDriver } from "./driver.ts"
import { until } from "./groups/group-rig.test-support.ts"
import type { KafkaNative } from "./session.ts"

const need = await serverNeed("kafka")
const spec: TopicSpec = {
  partitions: 1,
  durability: "written",
  offsetDurability: "written",
  deduplicationWindowMs: 0,
  deduplicateIds: false,
}
let names = 0

if (need === undefined) describe("a real broker", declare)
else test("a real broker", (t) => t.skip(`needs kafka: ${need}`))

function declare(): void {
  let server: Server
  before(async () => {
    server = await startKafka({ proxied: true, settings: { "connections.max.idle.ms": "1500" } })
  })
  after(() => server.stop())

  async function open(
    t: TestContext,
    options: Record<string, string | number> = {},
    changes: ConnectionChange[] = [],
  ): Promise<Session> {
    const hosts = server.ports.map((port) => ({ host: "127.0.0.1", port }))
    const session = await kafkaDriver.connect(
      { scheme: "kafka", hosts, path: "", options },
      { timeoutMs: 20_000, onConnection: (change) => changes.push(change) },
    )
    t.after(() => session.close())
    return session
  }

  test("the release is told, and the broker's own limit of a batch", async (t) => {
    const { manifest } = await open(t)
    assert.match(manifest.backend, /^Apache Kafka \d\.\d$/)
    assert.ok(manifest.limits.payloadBytes > 1_000_000 && manifest.limits.payloadBytes < 1_048_588)
  })

  for (const compression of ["none", "gzip", "snappy", "lz4", "zstd"]) {
    test(`the broker takes batches compressed with ${compression}`, async (t) => {
      const session = await open(t, { compression })
      const topic = await created(session)
      const batch = filled(session, topic, ["x".repeat(5_000), "y".repeat(5_000)])
      if (compression !== "none") assert.ok(batch.bytes < 5_000, `${batch.bytes} bytes`)
      assert.equal((await session.log.append(batch, {})).base, 0n)
      const [marks] = await session.log.watermarks([{ ...place(topic), partition: 0 }])
      assert.ok(marks !== undefined && !(marks instanceof MillraceError))
      assert.equal(marks.end, 2n)
    })
  }

  test("the largest payload goes in, in a topic with the broker's settings; one more byte than it takes does not", async (t) => {
    const session = await open(t)
    const topic = await created(session)
    const { payloadBytes } = session.manifest.limits
    assert.equal((await session.log.append(filled(session, topic, ["x".repeat(payloadBytes)]), {})).base, 0n)
    assert.throws(() => filled(session, topic, ["x".repeat(1_048_588)]), { kind: "record-too-large" })
  })

  test("a topic with a lower limit refuses a record here, and a batch of several is made to fit", async (t) => {
    const session = await open(t)
    const topic = await created(session, { native: { config: { "max.message.bytes": 2_000 } } })
    assert.deepEqual(topic.native, { config: { "max.message.bytes": "2000" } })
    assert.throws(() => filled(session, topic, ["x".repeat(2_000)]), { kind: "record-too-large" })
    const writer = session.log.writer(topic, 0, { records: 100, bytes: 1_000_000 })
    while (writer.tryAppend(record("x".repeat(100)))) assert.ok(writer.bytes <= 2_000)
    const batch = writer.seal({ id: 0n, timestampMicros: 1n, resend: false })
    assert.equal((await session.log.append(batch, {})).base, 0n)
  })

  test("a limit that was lowered behind our back is the broker's to tell, with the numbers", async (t) => {
    const session = await open(t)
    const other = await open(t)
    const topic = await created(session)
    const batch = filled(session, topic, ["x".repeat(3_000)])
    await session.catalog.deleteTopic(topic)
    const again = await other.catalog.createTopic(topic, {
      ...spec,
      native: { config: { "max.message.bytes": 1_000 } },
    })
    const error = await session.log.append(batch, {}).catch((reason: unknown) => reason)
    assert.ok(error instanceof MillraceError && error.kind === "not-found", String(error))
    const unaware = session.log.writer({ ...again, topic: again.topic }, 0, { records: 10, bytes: 10_000 })
    unaware.tryAppend(record("x".repeat(3_000)))
    const large = unaware.seal({ id: 0n, timestampMicros: 1n, resend: false })
    const refused = await session.log.append(large, {}).catch((reason: unknown) => reason)
    assert.ok(refused instanceof MillraceError, String(refused))
    assert.deepEqual([refused.kind, refused.outcome], ["record-too-large", "rejected"])
    assert.ok(Number(refused.context.sizeBytes) > 3_000)
  })

  test("sequences: a repeat is answered with its first offset, a gap is refused, an old epoch is fenced", async (t) => {
    const session = await open(t)
    const topic = await created(session)
    const identity = await session.log.identify(topic)
    const send = (sequence: number, who = identity): ReturnType<Session["log"]["append"]> =>
      session.log.append(filled(session, topic, ["a", "b"]), { identity: { ...who, sequence } })
    assert.equal((await send(0)).base, 0n)
    assert.equal((await send(2)).base, 2n)
    assert.equal((await send(0)).base, 0n)
    await assert.rejects(send(7), { kind: "sequence", outcome: "rejected" })
    const next = await session.log.identify(topic, identity)
    assert.deepEqual(next, { producerId: identity.producerId, epoch: identity.epoch + 1 })
    assert.equal((await send(0, next)).base, 4n)
    await assert.rejects(send(4), { kind: "fenced", outcome: "rejected" })
    assert.notEqual((await session.log.identify(topic)).producerId, identity.producerId)
  })

  test("settings that Kafka refuses are told in its words", async (t) => {
    const session = await open(t)
    await assert.rejects(created(session, { native: { config: { "no.such.setting": 1 } } }), {
      kind: "invalid",
      message: /INVALID_CONFIG/,
    })
    await assert.rejects(created(session, { native: { replicationFactor: 7 } }), {
      kind: "invalid",
      message: /INVALID_REPLICATION_FACTOR/,
    })
  })

  test("synced topics flush each message, and say so", async (t) => {
    const session = await open(t)
    const topic = await created(session, { durability: "synced" })
    assert.equal(topic.durability, "synced")
    assert.equal((await session.catalog.describeTopic(topic)).durability, "synced")
    assert.equal((await session.log.append(filled(session, topic, ["a"]), {})).base, 0n)
  })

  test("more partitions share the size limit of the topic", async (t) => {
    const session = await open(t)
    const topic = await created(session, { partitions: 2, maxBytes: 12_000_000n })
    const grown = await session.catalog.addPartitions(topic, 2)
    assert.equal(grown.maxBytes, 12_000_000n)
    assert.equal(grown.partitions.length, 4)
    await assert.rejects(session.catalog.addPartitions(topic, 0), { kind: "invalid" })
  })

  test("topics of the backend's own names, streams as prefixes, and the end of a stream", async (t) => {
    const session = await open(t)
    const { catalog } = session
    const stream = `a stream ${++names}`
    const bare = { stream: "", topic: `own_topic.${names}.x` }
    await catalog.createTopic(bare, spec)
    for (const topic of ["one", "two/three"]) await catalog.createTopic({ stream, topic }, spec)
    assert.deepEqual((await catalog.listTopics(stream)).map(({ topic }) => topic).sort(), ["one", "two/three"])
    assert.equal((await catalog.describeStream(stream)).topics, 2)
    assert.equal((await catalog.listStreams()).find((entry) => entry.stream === stream)?.topics, 2)
    assert.ok((await catalog.listTopics("")).some(({ topic }) => topic === bare.topic))
    await catalog.deleteStream(stream)
    assert.deepEqual(await catalog.listTopics(stream), [])
    assert.equal((await catalog.describeTopic(bare)).topic, bare.topic)
    await assert.rejects(catalog.deleteStream(""), { kind: "invalid" })
    await assert.rejects(catalog.createTopic({ stream: "", topic: "a b" }, spec), { kind: "invalid" })
    await assert.rejects(catalog.createTopic({ stream: "", topic: bare.topic.replaceAll(".", "_") }, spec), {
      kind: "invalid",
      message: /collides with existing topic/,
    })
  })

  test("a connection that the broker closed for being idle is opened again, and that is no loss", async (t) => {
    const changes: ConnectionChange[] = []
    const session = await open(t, {}, changes)
    const topic = await created(session)
    const { cluster } = session.native as KafkaNative
    assert.ok(cluster.connectionNow({ kind: "any" }) !== undefined)
    while (cluster.connectionNow({ kind: "any" }) !== undefined) await new Promise((resolve) => setTimeout(resolve, 50))
    assert.equal((await session.log.append(filled(session, topic, ["a"]), {})).base, 0n)
  })

  test("an answer that is lost leaves the outcome unknown, and the resend is recognised", async (t) => {
    const changes: ConnectionChange[] = []
    const session = await open(t, {}, changes)
    const topic = await created(session)
    const identity = { ...(await session.log.identify(topic)), sequence: 0 }
    const batch = filled(session, topic, ["a", "b"])
    server.proxies[0]?.cutBeforeReply()
    const error = await session.log.append(batch, { identity }).catch((reason: unknown) => reason)
    assert.ok(error instanceof MillraceError, String(error))
    assert.deepEqual([error.kind, error.retryable, error.outcome], ["connection", true, "unknown"])
    assert.equal((await session.log.append(batch, { identity })).base, 0n)
    const [marks] = await session.log.watermarks([{ ...place(topic), partition: 0 }])
    assert.ok(marks !== undefined && !(marks instanceof MillraceError))
    assert.equal(marks.end, 2n)
    assert.equal(changes[0]?.state, "lost")
    assert.equal(changes[1]?.state, "restored")
  })

  test("a broker that is killed and comes back finds the session waiting", async (t) => {
    const changes: ConnectionChange[] = []
    const session = await open(t, {}, changes)
    const topic = await created(session, { partitions: 2 })
    assert.equal((await session.log.append(filled(session, topic, ["a"]), {})).base, 0n)
    await server.kill()
    // Before it is noticed, an append would go into a connection that is dead: its outcome would be unknown.
    await until("the loss to be noticed", () => (changes.length > 0 ? true : undefined))
    const waiting = Promise.all([0, 1].map((partition) => appended(session, topic, partition)))
    await server.start()
    assert.deepEqual(await waiting, [1n, 0n])
    assert.deepEqual(
      changes.map(({ state }) => state),
      ["lost", "restored"],
    )
  })
}

/** Tries again as the core would. */
async function appended(session: Session, topic: TopicDescription, partition: number): Promise<bigint | undefined> {
  for (;;) {
    try {
      return (await session.log.append(filled(session, topic, ["x"], partition), {})).base
    } catch (error) {
      if (!(error instanceof MillraceError) || !error.retryable || error.outcome === "unknown") throw error
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
}

async function created(session: Session, more: Partial<TopicSpec> = {}): Promise<TopicDescription> {
  return session.catalog.createTopic({ stream: "real", topic: `t${++names}` }, { ...spec, ...more })
}

function record(payload: string): Parameters<ReturnType<Session["log"]["writer"]>["tryAppend"]>[0] {
  return { payload: Buffer.from(payload), key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined }
}

function filled(session: Session, topic: TopicDescription, payloads: readonly string[], partition = 0): SealedBatch {
  const { batchBytes, batchRecords } = session.manifest.limits
  const writer = session.log.writer(topic, partition, { records: batchRecords, bytes: batchBytes })
  for (const payload of payloads) assert.ok(writer.tryAppend(record(payload)))
  return writer.seal({ id: 0n, timestampMicros: 1_700_000_000_000_000n, resend: false })
}

function place({ stream, topic }: TopicDescription): { readonly stream: string; readonly topic: string } {
  return { stream, topic }
}
