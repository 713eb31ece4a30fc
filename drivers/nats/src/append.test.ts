import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import type { AppendResult, MillraceError, SealedBatch, Session, TopicDescription } from "@millrace/contract"
import { jetstream, jetstreamManager } from "@nats-io/jetstream"
import { connect } from "@nats-io/transport-node"
import { numbered, Shop } from "./reader-fixture.test-support.ts"
import { record, sealed } from "./sealed-batch.test-support.ts"
import type { NatsNative } from "./session.ts"

const timeout = 90_000

interface Stand {
  readonly shop: Shop
  readonly session: Session
  readonly topic: TopicDescription
}

async function stand(t: TestContext, options: Parameters<typeof Shop.open>[1] = {}): Promise<Stand | undefined> {
  const shop = await Shop.open(t, options)
  if (shop === undefined) return undefined
  const session = await shop.session()
  return { shop, session, topic: await shop.topic(session, { stream: "s", topic: "t" }, 2) }
}

/** What the partition holds, read by nats.js past the proxy: texts in the order of their sequences. */
async function stored({ shop, topic }: Stand, partition = 0): Promise<string[]> {
  const nc = await connect({ servers: shop.server.directUrl.replace("nats://", "") })
  try {
    const manager = await jetstreamManager(nc)
    const filter = `millrace.s.t.${partition}.${topic.lineage}`
    const streams = await manager.streams.list(filter).next()
    const name = streams[0]?.config.name
    if (name === undefined) return []
    const { state } = await manager.streams.info(name)
    const texts: string[] = []
    if (state.messages === 0) return texts
    const consumer = await jetstream(nc).consumers.get(name)
    for await (const message of await consumer.consume()) {
      texts.push(message.string())
      if (message.seq === state.last_seq) break
    }
    return texts
  } finally {
    await nc.close()
  }
}

async function settled(promise: Promise<AppendResult>): Promise<AppendResult | MillraceError> {
  return promise.catch((error: MillraceError) => error)
}

function contains(bytes: Uint8Array, text: string): boolean {
  return Buffer.from(bytes).includes(text)
}

/** Appends until the session is connected again. */
async function again(session: Session, batch: SealedBatch, confirm: "offsets" | "stored"): Promise<AppendResult> {
  const deadlineMs = performance.now() + 20_000
  for (;;) {
    try {
      return await session.log.append(batch, { confirm })
    } catch (error) {
      const { retryable } = error as MillraceError
      if (!retryable || performance.now() > deadlineMs) throw error
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
}

for (const [name, texts] of [
  ["a single record", ["a"]],
  ["an atomic batch", ["a", "b", "c"]],
] as const) {
  test(`${name} whose answer is lost is in doubt; sent again it is recognised, with its place`, {
    timeout,
  }, async (t) => {
    const all = await stand(t, { proxied: true })
    if (all === undefined) return
    const { session, topic, shop } = all
    await session.log.append(sealed(session, topic, ["first"]), {})
    const batch = sealed(session, topic, texts)
    const fault = shop.server.proxies[0]?.cutBeforeReply({
      request: (bytes) => contains(bytes, "HPUB millrace.s.t.0."),
    })
    const lost = await settled(session.log.append(batch, {}))
    await fault?.happened
    assert.ok(lost instanceof Error)
    assert.deepEqual([lost.kind, lost.outcome, lost.retryable], ["connection", "unknown", true])
    assert.deepEqual(await again(session, batch, "offsets"), { base: 1n, contiguous: true, duplicates: texts.length })
    await session.log.append(sealed(session, topic, ["last"]), {})
    assert.deepEqual(await stored(all), ["first", ...texts, "last"])
  })
}

test("of a batch that is there in part only the rest is stored, each where it is said to be", {
  timeout,
}, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic } = all
  const ids = [101n, 102n, 103n, 104n]
  const records = ["a", "b", "c", "d"].map((text, index) => record(text, { id: ids[index] }))
  await session.log.append(sealed(session, topic, records.slice(0, 2)), {})
  await session.log.append(sealed(session, topic, ["between"]), {})
  const result = await session.log.append(sealed(session, topic, records), {})
  assert.deepEqual(result, { base: 0n, contiguous: false, duplicates: 2 })
  assert.deepEqual(await stored(all), ["a", "b", "between", "c", "d"])
})

test("stored confirmations keep the order over many batches of all sizes, and nothing is doubled by a resend", {
  timeout,
}, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic } = all
  const sizes = [1, 499, 500, 501, 3, 1000, 730, 1, 1, 270]
  let next = 0
  const batches = sizes.map((size) => {
    const from = next
    next += size
    return sealed(session, topic, numbered("r", from, next))
  })
  const results = await Promise.all(batches.map((batch) => session.log.append(batch, { confirm: "stored" })))
  assert.ok(results.every((result) => result.base === undefined))
  await Promise.all(batches.map((batch) => session.log.append(batch, { confirm: "stored" })))
  assert.deepEqual(await session.log.append(sealed(session, topic, ["end"]), {}), {
    base: BigInt(next),
    contiguous: true,
    duplicates: 0,
  })
  const [marks] = await session.log.watermarks([{ stream: "s", topic: "t", partition: 0 }])
  assert.ok(marks !== undefined && !(marks instanceof Error))
  assert.equal(marks.end, BigInt(next + 1))
  const texts = await stored(all)
  assert.deepEqual(texts, [...numbered("r", 0, next), "end"])
})

test("both kinds of confirmation in one partition keep the order of the calls", { timeout }, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic } = all
  const kinds = ["stored", "stored", "offsets", "offsets", "stored", "offsets", "stored"] as const
  await Promise.all(
    kinds.map((confirm, index) => session.log.append(sealed(session, topic, [`${index}a`, `${index}b`]), { confirm })),
  )
  assert.deepEqual(
    await stored(all),
    kinds.flatMap((_, index) => [`${index}a`, `${index}b`]),
  )
})

test("an ingest that is cut leaves in doubt what was sent; the resend completes it in order and without a double", {
  timeout,
}, async (t) => {
  const all = await stand(t, { proxied: true })
  if (all === undefined) return
  const { session, topic, shop } = all
  const batches = Array.from({ length: 4 }, (_, index) =>
    sealed(session, topic, numbered("r", index * 700, index * 700 + 700)),
  )
  const fault = shop.server.proxies[0]?.cutBeforeReply({
    request: (bytes) => contains(bytes, ".fail."),
    reply: (bytes) => contains(bytes, '"seq":1000'),
  })
  const outcomes = await Promise.all(batches.map((batch) => settled(session.log.append(batch, { confirm: "stored" }))))
  await fault?.happened
  for (const outcome of outcomes.slice(1)) {
    assert.ok(outcome instanceof Error, "nothing behind the cut is confirmed")
    assert.equal(outcome.retryable, true)
  }
  for (const batch of batches) await again(session, batch, "stored")
  assert.deepEqual(await stored(all), numbered("r", 0, 2800))
})

test("after a restart of an idle server the next ingest is stored", { timeout }, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic, shop } = all
  await session.log.append(sealed(session, topic, numbered("a", 0, 500)), { confirm: "stored" })
  await shop.server.kill()
  await shop.server.start()
  await again(session, sealed(session, topic, numbered("b", 0, 500)), "stored")
  assert.deepEqual(await stored(all), [...numbered("a", 0, 500), ...numbered("b", 0, 500)])
})

test("A-12: a kill under load loses nothing that was confirmed, and the order holds", { timeout }, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic, shop } = all
  let killed: Promise<void> | undefined
  const confirmed: string[] = []
  for (let index = 0; index < 60; index++) {
    const texts = numbered(`${index}.`, 0, 20)
    const batch = sealed(session, topic, texts)
    if (index === 20) killed = shop.server.kill().then(() => shop.server.start())
    await again(session, batch, index % 2 === 0 ? "offsets" : "stored")
    confirmed.push(...texts)
  }
  await killed
  assert.deepEqual(await stored(all), confirmed)
})

test("a topic that is deleted under an ingest fails what is under way, and says so", { timeout }, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic } = all
  await session.log.append(sealed(session, topic, numbered("a", 0, 500)), { confirm: "stored" })
  await session.catalog.deleteTopic(topic)
  const outcomes = await Promise.all([
    settled(session.log.append(sealed(session, topic, ["b"]), { confirm: "stored" })),
    settled(session.log.append(sealed(session, topic, ["c"]), { confirm: "offsets" })),
  ])
  for (const outcome of outcomes) {
    assert.ok(outcome instanceof Error)
    assert.equal(outcome.outcome, "rejected")
  }
  assert.equal((outcomes[0] as MillraceError).kind, "not-found")
})

test("closing settles what is under way: what was sent is in doubt, what was not is rejected", {
  timeout,
}, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic } = all
  const appends = Array.from({ length: 30 }, (_, index) =>
    settled(
      session.log.append(sealed(session, topic, numbered(`${index}`, 0, 50)), {
        confirm: index < 10 ? "stored" : "offsets",
      }),
    ),
  )
  await session.close()
  for (const outcome of await Promise.all(appends)) {
    if (outcome instanceof Error) assert.ok(outcome.kind === "closed", `${outcome.kind}: ${outcome.message}`)
  }
  const late = await settled(session.log.append(sealed(session, topic, ["late"]), {}))
  assert.ok(late instanceof Error && late.kind === "closed" && late.outcome === "rejected")
})

test("a record is too large with its headers by numbers that it names, and its neighbours are taken", {
  timeout,
}, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic } = all
  const { connection } = session.native as NatsNative
  const limitBytes = connection.info?.max_payload ?? 0
  const writer = session.log.writer(topic, 0, { records: 10, bytes: 4 << 20 })
  assert.ok(writer.tryAppend(record("small")))
  const large = record("", {
    payload: new Uint8Array(session.manifest.limits.payloadBytes),
    key: new Uint8Array(4_000),
  })
  assert.throws(
    () => writer.tryAppend(large),
    (error: MillraceError) => {
      assert.deepEqual([error.kind, error.context.limitBytes], ["record-too-large", limitBytes])
      assert.ok(error.message.includes(String(limitBytes)))
      return true
    },
  )
  assert.throws(() => writer.tryAppend(record("", { key: new Uint8Array(60_000) })), { kind: "record-too-large" })
  assert.equal(writer.count, 1)
  const batch = writer.seal({ id: 1n << 64n, timestampMicros: 0n, resend: false })
  assert.equal((await session.log.append(batch, {})).base, 0n)
})

test("without a window of duplicates a record carries an id only when it was given one", { timeout }, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session } = all
  const spec = {
    partitions: 1,
    durability: "written",
    offsetDurability: "written",
    deduplicationWindowMs: 0,
    deduplicateIds: false,
  } as const
  const topic = await session.catalog.createTopic({ stream: "s", topic: "no-window" }, spec)
  assert.equal(topic.deduplicationWindowMs, 0)
  await session.log.append(sealed(session, topic, ["a", record("b", { id: 77n })]), { confirm: "stored" })
  const reader = session.log.openReader({ isolation: "committed" })
  const { stream, topic: name, lineage } = topic
  reader.set([{ stream, topic: name, partition: 0, offset: 0n, lineage }])
  const [read] = await reader.next({ maxRecords: 10, maxBytes: 1e6, minRecords: 2, maxWaitMs: 10_000 })
  await reader.close()
  assert.ok(read !== undefined && read.error === undefined)
  const ids = read.batches.flatMap((batch) => Array.from({ length: batch.count }, (_, index) => batch.id(index)))
  assert.deepEqual(ids, [undefined, 77n])
})

test("a stream that takes neither batches nor ingests, as an older server made it, is written one by one", {
  timeout,
}, async (t) => {
  const all = await stand(t)
  if (all === undefined) return
  const { session, topic } = all
  const manager = await jetstreamManager((session.native as NatsNative).connection)
  const { config } = await manager.streams.info("millrace_s_t_0")
  await manager.streams.update(config.name, { ...config, allow_atomic: false, allow_batched: false })
  const kinds = ["stored", "stored", "offsets", "stored"] as const
  for (const [index, confirm] of kinds.entries()) {
    await again(session, sealed(session, topic, [`${index}a`, `${index}b`]), confirm)
  }
  const results = await session.log.append(sealed(session, topic, ["x", "y"]), {})
  assert.deepEqual(results, { base: 8n, contiguous: true, duplicates: 0 })
  assert.deepEqual(await stored(all), [...kinds.flatMap((_, index) => [`${index}a`, `${index}b`]), "x", "y"])
})
