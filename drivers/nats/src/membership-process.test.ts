import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Session, TopicDescription } from "@millrace/contract"
import { Child, Member, type Watched } from "./membership-watched.test-support.ts"
import { patienceMs, Shop } from "./reader-fixture.test-support.ts"

const orders = { stream: "shop", topic: "orders" }
const workers = { kind: "group", name: "workers" } as const
const partitions = 16

async function openGroup(shop: Shop): Promise<{ session: Session; topic: TopicDescription; port: number }> {
  const session = await shop.session()
  const topic = await shop.topic(session, orders, partitions)
  await session.groups.create("workers", orders)
  return { session, topic, port: shop.server.ports[0] as number }
}

/** Each partition with one of them, and none with more than one above another. */
async function shared(...members: readonly Watched[]): Promise<void> {
  const deadline = performance.now() + patienceMs
  for (;;) {
    const counts = members.map(({ held }) => held.size)
    const all = new Set(members.flatMap(({ held }) => [...held]))
    const even = Math.max(...counts) - Math.min(...counts) <= 1
    if (all.size === partitions && counts.reduce((sum, count) => sum + count) === partitions && even) return
    if (performance.now() > deadline) {
      throw new Error(
        `no even share came: ${members.map(({ told, held }) => `[${[...held]}] after ${told.join("; ")}`)}`,
      )
    }
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

async function storedOffsets(session: Session): Promise<(bigint | undefined)[]> {
  const places = Array.from({ length: partitions }, (_, partition) => ({ ...orders, partition }))
  const found = await session.offsets.load(workers, places)
  return found.map((place) => (place instanceof Error ? undefined : place?.offset))
}

describe("members in processes of their own", () => {
  test("share 16 partitions as they join, leave and are killed, and late commits are refused (A-07)", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const { session, port } = await openGroup(shop)
    const member = await Member.join(session)
    await member.holds(16)
    const [b, c] = [new Child(t, { port, sessionTimeoutMs: 3_000 }), new Child(t, { port, sessionTimeoutMs: 3_000 })]
    await shared(member, b, c)
    await b.commit(5)
    b.ask({ type: "leave" })
    await b.until("its end", () => b.end === "done")
    await shared(member, c)
    const held = [...c.held]
    const outcomes = await c.commit(7)
    for (const partition of held) {
      assert.equal(outcomes.findLast((one) => one.partition === partition)?.outcome, "stored", `partition ${partition}`)
    }
    const killed = performance.now()
    c.process.kill("SIGKILL")
    await member.holds(16)
    const tookMs = performance.now() - killed
    t.diagnostic(`take-over after SIGKILL with a session time-out of 3000 ms: ${tookMs.toFixed(0)} ms`)
    assert.ok(tookMs > 1_500, `taken for dead after ${tookMs} ms`)
    for (const partition of held) assert.equal((await storedOffsets(session))[partition], 7n)
    assert.ok(
      member.told.every((text) => !text.includes("twice")),
      member.told.join("; "),
    )
    await member.membership.leave()
  })

  test("a halted process loses its partitions after its session time-out, cannot commit under its old claims, and comes back", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const { session, port } = await openGroup(shop)
    const child = new Child(t, { port, sessionTimeoutMs: 2_000 })
    await child.holds(16)
    const member = await Member.join(session, 2_000)
    await shared(member, child)
    await child.commit(3)
    child.process.kill("SIGSTOP")
    await member.holds(16)
    child.process.kill("SIGCONT")
    // Before it knows: everything under an old claim is refused by what is stored, not by what the process believes.
    const late = await child.commit(9)
    assert.ok(late.length >= 16)
    const voided = late.slice(0, 16)
    assert.deepEqual([...new Set(voided.map(({ outcome }) => outcome))], ["not-assigned"])
    await child.until("the loss", () => child.told.some((text) => text.includes("!")))
    await shared(member, child)
    for (const offset of await storedOffsets(session)) assert.notEqual(offset, 9n)
    await member.membership.leave()
  })

  test("a process whose event loop is blocked for less than its session time-out keeps its partitions (A-27)", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const { session, port } = await openGroup(shop)
    const child = new Child(t, { port, sessionTimeoutMs: 6_000 })
    await child.holds(16)
    const member = await Member.join(session, 6_000)
    await shared(member, child)
    const told = member.told.length
    child.ask({ type: "block", ms: 2_500 })
    await child.until("the end of the block", () => child.unblocked)
    assert.equal(member.told.length, told, member.told.join("; "))
    const outcomes = await child.commit(4)
    for (const partition of child.held) {
      assert.equal(outcomes.findLast((one) => one.partition === partition)?.outcome, "stored")
    }
    await member.membership.leave()
  })

  test("a process with a stable id takes the place of another, which ends as fenced", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const { session, port } = await openGroup(shop)
    const first = new Child(t, { port, memberId: "desk-1", sessionTimeoutMs: 5_000 })
    await first.holds(16)
    const member = await Member.join(session)
    await shared(member, first)
    const held = [...first.held].sort()
    const second = new Child(t, { port, memberId: "desk-1", sessionTimeoutMs: 5_000 })
    await second.holds(8)
    await first.until("its end", () => first.end !== undefined)
    assert.equal(first.end, "fenced")
    assert.deepEqual([...second.held].sort(), held)
    await member.membership.leave()
  })

  test("a server that is killed and started again costs nobody its partitions", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const { session, topic } = await openGroup(shop)
    const other = await shop.session()
    const [a, b] = [await Member.join(session, 5_000), await Member.join(other, 5_000)]
    await shared(a, b)
    const [toldA, toldB] = [a.told.length, b.told.length]
    await shop.server.kill("SIGKILL")
    await shop.server.start()
    const partition = [...a.held][0] as number
    const claim = a.claims.get(partition)
    const entry = {
      ...orders,
      partition,
      offset: 2n,
      lineage: topic.lineage,
      ...(claim === undefined ? {} : { claim }),
    }
    // The core would try again after a failure that may pass.
    const deadline = performance.now() + 15_000
    let [outcome] = await session.offsets.store(workers, [entry])
    while (outcome?.retryable && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 50))
      outcome = (await session.offsets.store(workers, [entry]))[0]
    }
    assert.equal(outcome, undefined)
    const c = await Member.join(await shop.session(), 5_000)
    await shared(a, b, c)
    for (const text of [...a.told.slice(toldA), ...b.told.slice(toldB)]) assert.ok(!text.includes("!"), `lost: ${text}`)
    await Promise.all([a, b, c].map((member) => member.membership.leave()))
  })

  test("a member that was cut off for longer than its session time-out finds itself replaced, and comes back", async (t) => {
    const shop = await Shop.open(t, { proxied: true })
    if (shop === undefined) return
    const session = await shop.directSession()
    const topic = await shop.topic(session, orders, partitions)
    await session.groups.create("workers", orders)
    const far = await shop.session()
    const away = await Member.join(far, 2_000)
    await away.holds(16)
    const near = await Member.join(session, 2_000)
    await shared(away, near)
    const partition = [...away.held][0] as number
    const claim = away.claims.get(partition)
    const [proxy] = shop.server.proxies
    await proxy?.refuse(true)
    proxy?.cut("reset")
    await near.holds(16)
    const entry = {
      ...orders,
      partition,
      offset: 9n,
      lineage: topic.lineage,
      ...(claim === undefined ? {} : { claim }),
    }
    const [whileAway] = await far.offsets.store(workers, [entry])
    assert.equal(whileAway?.kind, "connection")
    await proxy?.refuse(false)
    await away.until("the loss", () => away.told.some((text) => text.includes("!")))
    const [late] = await far.offsets.store(workers, [entry])
    assert.equal(late?.kind, "not-assigned")
    await shared(away, near)
    assert.equal((await storedOffsets(session))[partition], undefined)
    await Promise.all([away, near].map((member) => member.membership.leave()))
  })

  test("members that come and go at once in a cluster of three servers agree", async (t) => {
    const shop = await Shop.open(t, { servers: 3 })
    if (shop === undefined) return
    const sessions = await Promise.all([shop.session(), shop.session(), shop.session()])
    const [session] = sessions
    const topic = await shop.topic(session, orders, partitions)
    await session.groups.create("workers", topic)
    const members = await Promise.all(sessions.map((one) => Member.join(one, 10_000)))
    await shared(...members)
    const [stays, ...leaving] = members
    await Promise.all(leaving.map((member) => member.membership.leave()))
    await stays?.holds(16)
    assert.equal(stays?.end, undefined)
    await stays?.membership.leave()
  })
})
