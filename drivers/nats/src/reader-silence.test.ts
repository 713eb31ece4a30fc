import assert from "node:assert/strict"
import { test } from "node:test"
import { MillraceError, type PartitionRead, type ReadLimits } from "@millrace/contract"
import { systemRandom, VirtualClock } from "@millrace/runtime"
import { Connection } from "./connection.ts"
import { Shop } from "./reader-fixture.test-support.ts"
import { NatsSession } from "./session.ts"

const orders = { stream: "shop", topic: "orders" }

/** Three heartbeats of 5 s that are missed, one that was half over, and the time limit of the request that asks what is wrong, in ms. */
const noticedMs = 4 * 5_000 + 10_000 + 1_000

/** Moves the clock on, 20 times as fast as the real one, until the call has settled. */
async function settled<T>(clock: VirtualClock, call: Promise<T>): Promise<PromiseSettledResult<T>> {
  let outcome: PromiseSettledResult<T> | undefined
  void Promise.allSettled([call]).then(([one]) => {
    outcome = one
  })
  while (outcome === undefined) {
    await clock.advance(100)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  return outcome
}

function textsOf(reads: readonly PartitionRead[]): string[] {
  return reads.flatMap((read) => {
    if (read.error !== undefined) throw read.error
    return read.batches.flatMap((batch) =>
      Array.from({ length: batch.count }, (_, index) => Buffer.from(batch.payload(index) ?? []).toString()),
    )
  })
}

test("a reader notices a server that is silent on an open connection, says so, and goes on when it speaks again", {
  timeout: 60_000,
}, async (t) => {
  const shop = await Shop.open(t, { proxied: true })
  if (shop === undefined) return
  const clock = new VirtualClock()
  const hosts = [{ host: "127.0.0.1", port: shop.server.ports[0] as number }]
  const session = new NatsSession(
    await Connection.open(
      { scheme: "nats", hosts, path: "", options: {} },
      { timeoutMs: 20_000 },
      { clock, random: systemRandom },
    ),
  )
  t.after(() => session.close())
  const writer = await shop.directSession()
  const topic = await shop.topic(writer, orders)
  const reader = session.log.openReader({ isolation: "committed" })
  reader.set([{ ...orders, partition: 0, offset: 0n, lineage: topic.lineage }])
  const next = (limits: Partial<ReadLimits> = {}): Promise<PartitionRead[]> =>
    reader.next({ maxRecords: 10, maxBytes: 100_000, minRecords: 1, maxWaitMs: 1_000, ...limits })
  await shop.append(writer, topic, { texts: ["a"] })
  assert.deepEqual(textsOf(await next({ maxWaitMs: 60_000 })), ["a"])

  shop.server.proxies[0]?.stall()
  await shop.append(writer, topic, { texts: ["b"] })
  const told = await settled(clock, next({ maxWaitMs: noticedMs }))
  assert.ok(told.status === "rejected", "the silence was taken for an empty topic")
  assert.ok(told.reason instanceof MillraceError)
  assert.deepEqual([told.reason.kind, told.reason.retryable], ["timeout", true])

  shop.server.proxies[0]?.flow()
  await shop.append(writer, topic, { texts: ["c"] })
  const seen: string[] = []
  while (seen.length < 2) {
    const outcome = await settled(clock, next())
    if (outcome.status === "fulfilled") seen.push(...textsOf(outcome.value))
  }
  assert.deepEqual(seen, ["b", "c"])
  await reader.close()
  await settled(clock, session.close())
  assert.equal(clock.timers, 0)
})
