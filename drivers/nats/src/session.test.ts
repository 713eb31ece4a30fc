import assert from "node:assert/strict"
import { test } from "node:test"
import { Member } from "./membership-watched.test-support.ts"
import { Shop } from "./reader-fixture.test-support.ts"
import { sealed } from "./sealed-batch.test-support.ts"

const timeout = 60_000
const orders = { stream: "shop", topic: "orders" }

/** Longer than a session waits for its members to leave, and far below the time limit of a request, in ms. */
const soonMs = 4_000

test("a session whose server has gone silent closes soon, and whatever was under way has settled by then", {
  timeout,
}, async (t) => {
  const shop = await Shop.open(t, { proxied: true })
  if (shop === undefined) return
  const session = await shop.session()
  const topic = await shop.topic(session, orders)
  await session.groups.create("workers", orders)
  const member = await Member.join(session, 60_000)
  await member.holds(1)
  const reader = session.log.openReader({ isolation: "committed" })
  reader.set([{ ...orders, partition: 0, offset: 0n, lineage: topic.lineage }])
  shop.server.proxies[0]?.stall()
  const place = { ...orders, partition: 0 }
  const calls = [
    session.log.append(sealed(session, topic, ["a"]), {}),
    session.log.append(sealed(session, topic, ["b"]), { confirm: "stored" }),
    session.catalog.describeTopic(orders),
    session.offsets.load({ kind: "consumer", name: "x" }, [place]),
    session.groups.join("workers", [orders], { sessionTimeoutMs: 6_000, rebalanceTimeoutMs: 6_000 }),
    reader.next({ maxRecords: 10, maxBytes: 1_000, minRecords: 1, maxWaitMs: 30_000 }),
  ]
  const settled = Promise.allSettled(calls)
  const began = performance.now()
  await session.close()
  const outcomes = await settled
  const tookMs = performance.now() - began
  assert.ok(tookMs < soonMs, `closing took ${tookMs.toFixed(0)} ms`)
  assert.deepEqual(outcomes.at(-1), { status: "fulfilled", value: [] })
  for (const outcome of outcomes.slice(0, -1)) {
    assert.ok(outcome.status === "rejected")
    assert.equal(outcome.reason.kind, "closed", String(outcome.reason))
  }
  const [confirmed, stored] = outcomes
  assert.equal(confirmed?.status === "rejected" && confirmed.reason.outcome, "unknown")
  assert.equal(stored?.status === "rejected" && stored.reason.outcome, "rejected", "it waited behind the first")
})
