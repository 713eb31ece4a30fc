import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { OffsetEntry, OffsetOwner, Session, TopicDescription } from "@millrace/contract"
import { Kvm } from "@nats-io/kv"
import { connect } from "@nats-io/transport-node"
import fc from "fast-check"
import { Member } from "./membership-watched.test-support.ts"
import { formatOffset, parseOffset } from "./offsets-entry.ts"
import { groupKey, offsetKey } from "./offsets-key.ts"
import { OffsetsQueue } from "./offsets-queue.ts"
import { Shop } from "./reader-fixture.test-support.ts"

const orders = { stream: "shop", topic: "orders" }
const reader: OffsetOwner = { kind: "consumer", name: "x" }
const workers: OffsetOwner = { kind: "group", name: "workers" }

function entry(topic: TopicDescription, offset: bigint, more: Partial<OffsetEntry> = {}): OffsetEntry {
  return { ...orders, partition: 0, offset, lineage: topic.lineage, ...more }
}

async function stored(session: Session, owner: OffsetOwner): Promise<bigint | undefined> {
  const [place] = await session.offsets.load(owner, [{ ...orders, partition: 0 }])
  if (place instanceof Error) throw place
  return place?.offset
}

describe("offsets over a real server", () => {
  test("lie in a bucket that other clients can look into", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    await session.offsets.store(reader, [entry(topic, 12n)])
    const nc = await connect({ servers: `127.0.0.1:${shop.server.ports[0]}` })
    t.after(() => nc.close())
    const kv = await new Kvm(nc).open("millrace")
    const keys: string[] = []
    for await (const key of await kv.keys()) keys.push(key)
    assert.deepEqual(keys, [offsetKey(reader, { ...orders, partition: 0, lineage: topic.lineage })])
    assert.deepEqual((await kv.get(keys[0] as string))?.json(), { offset: "12" })
    // What another client deletes is not there any more, and can be stored again.
    await kv.delete(keys[0] as string)
    assert.equal(await stored(session, reader), undefined)
    assert.deepEqual(await session.offsets.store(reader, [entry(topic, 13n)]), [undefined])
    assert.equal(await stored(session, reader), 13n)
  })

  test("a commit under a claim that was fenced is refused, though its member does not know yet (A-07)", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const [session, other] = [await shop.session(), await shop.session()]
    const topic = await shop.topic(session, orders)
    await session.groups.create("workers", orders)
    const old = await Member.join(session, 60_000)
    await old.holds(1)
    const claim = old.claims.get(0)
    assert.ok(claim !== undefined)
    assert.deepEqual(await session.offsets.store(workers, [entry(topic, 4n, { claim })]), [undefined])
    // As if the old member had been expelled: the record and the fence change, and nobody tells the old one.
    const { NatsOffsets } = await import("./offsets.ts")
    assert.ok(other.offsets instanceof NatsOffsets)
    const { record } = await other.offsets.groups.read("workers")
    const number = (record?.next ?? 0) + 1
    const fenced = await other.offsets.fence(
      "workers",
      { ...orders, partition: 0, number, lineage: topic.lineage, wanted: false },
      { group: record?.id ?? "", number },
    )
    assert.equal(fenced, true)
    const [outcome] = await session.offsets.store(workers, [entry(topic, 9n, { claim })])
    assert.equal(outcome?.kind, "not-assigned")
    assert.equal(outcome?.outcome, "rejected")
    assert.equal(await stored(other, workers), 4n)
    await old.membership.leave()
  })

  test("without a claim, a group's offset is stored only while nobody owns the partition", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    await session.groups.create("workers", orders)
    assert.deepEqual(await session.offsets.store(workers, [entry(topic, 3n)]), [undefined])
    const member = await Member.join(session)
    await member.holds(1)
    assert.equal(await stored(session, workers), 3n, "the fence keeps what was stored")
    assert.equal((await session.offsets.store(workers, [entry(topic, 5n)]))[0]?.kind, "not-assigned")
    await member.membership.leave()
    assert.deepEqual(await session.offsets.store(workers, [entry(topic, 6n)]), [undefined])
    assert.equal(await stored(session, workers), 6n)
  })

  test("a commit whose acknowledgement got lost is unknown, and the next one is stored", async (t) => {
    const shop = await Shop.open(t, { proxied: true })
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    await session.groups.create("workers", orders)
    const member = await Member.join(session, 60_000)
    await member.holds(1)
    const claim = member.claims.get(0)
    assert.ok(claim !== undefined)
    const isCommit = (bytes: Uint8Array): boolean => Buffer.from(bytes).includes("$KV.millrace.offset.")
    shop.server.proxies[0]?.cutBeforeReply({ request: isCommit })
    const [lost] = await session.offsets.store(workers, [entry(topic, 7n, { claim })])
    assert.equal(lost?.outcome, "unknown")
    const deadline = performance.now() + 15_000
    let [outcome] = await session.offsets.store(workers, [entry(topic, 8n, { claim })])
    while (outcome?.retryable && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 50))
      outcome = (await session.offsets.store(workers, [entry(topic, 8n, { claim })]))[0]
    }
    assert.equal(outcome, undefined)
    assert.equal(await stored(session, workers), 8n)
    await member.membership.leave()
  })

  test("go with their topic", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    await session.offsets.store(reader, [entry(topic, 12n)])
    await session.catalog.deleteTopic(orders)
    const nc = await connect({ servers: `127.0.0.1:${shop.server.ports[0]}` })
    t.after(() => nc.close())
    const kv = await new Kvm(nc).open("millrace")
    assert.equal((await kv.status()).values, 0)
  })
})

describe("a bucket that does not answer at present", () => {
  test("is waited for: the store failed for now, and stored nothing", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    const nc = await connect({ servers: `127.0.0.1:${shop.server.ports[0]}` })
    t.after(() => nc.close())
    // As in an election: the stream is there, and nobody listens to its subjects.
    const config = { name: "KV_millrace", subjects: ["elsewhere"] }
    await nc.request("$JS.API.STREAM.CREATE.KV_millrace", JSON.stringify(config))
    const [outcome] = await session.offsets.store(reader, [entry(topic, 3n)])
    assert.deepEqual([outcome?.kind, outcome?.retryable, outcome?.outcome], ["not-leader", true, "rejected"])
  })
})

describe("keys and values", () => {
  test("different owners and places never have one key, and every key is one that the bucket takes", () => {
    const name = fc.oneof(fc.string(), fc.constantFrom("", "a", "a.b", "a_b", "_", "*", ">", "a b", "ü", "=61"))
    const place = fc.record({
      owner: fc.record({ kind: fc.constantFrom("consumer" as const, "group" as const), name }),
      stream: name,
      topic: name,
      lineage: name,
      partition: fc.nat(20),
    })
    fc.assert(
      fc.property(place, place, (one, other) => {
        const keys = [one, other].map(({ owner, ...rest }) => offsetKey(owner, rest))
        assert.equal(keys[0] === keys[1], JSON.stringify(one) === JSON.stringify(other))
        for (const key of [...keys, groupKey(one.owner.name)])
          assert.match(key, /^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$/)
      }),
      { numRuns: 2_000 },
    )
  })

  test("a stored offset comes back with every digit, and damage is refused", () => {
    const claim = { group: "g", number: 3 }
    for (const value of [
      { offset: 2n ** 63n, claim },
      { offset: undefined, claim },
      { offset: 0n, claim: undefined },
    ]) {
      assert.deepEqual(parseOffset("k", formatOffset(value)), value)
    }
    assert.deepEqual(parseOffset("k", undefined), { offset: undefined, claim: undefined })
    for (const text of [
      "",
      "{",
      "null",
      '{"offset":5}',
      '{"offset":"-1"}',
      '{"claim":{"group":1,"number":2}}',
      '{"offset":"1","claim":7}',
    ]) {
      assert.throws(() => parseOffset("k", new TextEncoder().encode(text)), { kind: "corruption" }, text)
    }
  })

  test("work on one key keeps its order, also behind a failure", async () => {
    const queue = new OffsetsQueue()
    const done: string[] = []
    const gate = Promise.withResolvers<void>()
    const first = queue.run("k", async () => {
      await gate.promise
      done.push("first")
      throw new Error("it failed")
    })
    const second = queue.run("k", async () => done.push("second"))
    await queue.run("other", async () => done.push("other"))
    gate.resolve()
    await assert.rejects(first)
    await second
    assert.deepEqual(done, ["other", "first", "second"])
  })
})
