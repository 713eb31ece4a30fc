/** Three servers, three replicas of each record, and the leader of the stream killed under load. `MILLRACE_LONG=1`: more records. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { MillraceError, type SealedBatch, type Session, type TopicDescription } from "@millrace/contract"
import { numbered, Reading, Shop } from "./reader-fixture.test-support.ts"
import { sealed } from "./sealed-batch.test-support.ts"

const timeout = 240_000
const records = process.env.MILLRACE_LONG === "1" ? 20_000 : 2_000
const batchLength = 50

/** A new leader is chosen within some seconds; an append that still fails behind this time is a failure of the test, in ms. */
const electionMs = 60_000

for (const confirm of ["offsets", "stored"] as const) {
  test(`the death of a stream's leader loses, doubles and reorders nothing that was confirmed (${confirm})`, {
    timeout,
  }, async (t) => {
    const shop = await Shop.open(t, { servers: 3 })
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await session.catalog.createTopic(
      { stream: "shop", topic: "orders" },
      {
        partitions: 1,
        durability: "written",
        offsetDurability: "written",
        deduplicationWindowMs: 120_000,
        deduplicateIds: true,
        native: { num_replicas: 3 },
      },
    )
    const texts = numbered("r", 0, records)
    const batches = Array.from({ length: records / batchLength }, (_, index) =>
      sealed(session, topic, texts.slice(index * batchLength, (index + 1) * batchLength)),
    )
    const third = Math.floor(batches.length / 3)
    // Beside the appends, so that some are under way when the leader dies.
    let killed: Promise<number> | undefined
    let started: Promise<void> | undefined
    const bases = await appendAll(session, batches, {
      confirm,
      confirmed: (count) => {
        if (count >= third) killed ??= killLeader(shop, session, topic)
        if (count >= 2 * third) started ??= killed?.then((dead) => shop.server.start(dead))
      },
    })
    await started
    assert.deepEqual(shop.server.running, [0, 1, 2])
    assert.ok(started !== undefined)
    if (confirm === "offsets") {
      assert.deepEqual(
        bases,
        batches.map((_, index) => BigInt(index * batchLength)),
      )
    }
    const reading = new Reading(session, topic)
    await reading.until("all that was sent", () => reading.seen.length >= records)
    await reading.poll()
    await reading.reader.close()
    const places = await session.log.locate(
      [0n, BigInt(Date.now() + 3_600_000) * 1000n].map((value) => ({
        ...{ stream: topic.stream, topic: topic.topic, partition: 0 },
        at: { kind: "timestampMicros", value },
      })),
    )
    assert.deepEqual(
      places.map((place) => (place instanceof Error ? place : place.offset)),
      [0n, BigInt(records)],
    )
    assert.deepEqual(
      reading.seen.map((line) => line.slice(line.lastIndexOf(":") + 1)),
      texts,
    )
  })
}

/**
 * Appends in order, as many at once as the manifest allows, as the core does: behind a failure nothing new is sent before what is under
 * way has settled, then all that is not confirmed is sent again. Answers the offsets that were told.
 */
async function appendAll(
  session: Session,
  batches: readonly SealedBatch[],
  options: {
    readonly confirm: "offsets" | "stored"
    /** Called now and then with the number of batches that are confirmed. */
    readonly confirmed: (count: number) => void
  },
): Promise<(bigint | undefined)[]> {
  const { confirm, confirmed } = options
  const atOnce = session.manifest.append.inFlight[confirm]
  const bases: (bigint | undefined)[] = []
  let failingSince: number | undefined
  while (bases.length < batches.length) {
    const from = bases.length
    const sent = batches.slice(from, from + atOnce).map((batch) => session.log.append(batch, { confirm }))
    const outcomes = await Promise.allSettled(sent)
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.status === "rejected") {
        const { reason } = outcome
        if (!(reason instanceof MillraceError && reason.retryable)) throw reason
        failingSince ??= performance.now()
        if (performance.now() - failingSince > electionMs) throw reason
        await new Promise((resolve) => setTimeout(resolve, 50))
        break
      }
      assert.equal(bases.length, from + index)
      bases.push(outcome.value.base)
      failingSince = undefined
    }
    confirmed(bases.length)
  }
  return bases
}

/** Kills the server that leads partition 0, and answers its number. */
async function killLeader(shop: Shop, session: Session, { stream, topic }: TopicDescription): Promise<number> {
  const { partitions } = await session.catalog.describeTopic({ stream, topic })
  const [, number] = /^millrace-(\d)$/.exec(partitions[0]?.leader ?? "") ?? []
  assert.ok(number !== undefined, `the leader is ${partitions[0]?.leader}`)
  const node = Number(number) - 1
  await shop.server.kill("SIGKILL", node)
  return node
}
