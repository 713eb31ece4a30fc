/** The model of a work queue keeps the contract that it stands for. */
import assert from "node:assert/strict"
import { test } from "node:test"
import type { QueueSession, QueueSpec, Settlement } from "@millrace/contract"
import { Chance } from "../chance.ts"
import { RecordFeed } from "../reading/record-feed.ts"
import { SimClock } from "../sim-clock.ts"
import { FaultyBackend } from "./faulty-backend.ts"
import { manifestOf } from "./manifests.ts"

const name = { stream: "s", topic: "a" }
const explicit: QueueSpec = { ackWaitMs: 1000, backoffMs: [], ackPolicy: "explicit", startAt: { kind: "first" } }
const now = { maxMessages: 10, maxBytes: 1000, maxWaitMs: 0 }

async function rig(spec: Partial<QueueSpec> = {}, records = 3): Promise<Rig> {
  const clock = new SimClock()
  const backend = new FaultyBackend({ clock, manifest: manifestOf("sequence", { queues: true }) })
  backend.createStream("s")
  const durability = { durability: "synced", offsetDurability: "synced" } as const
  backend.createTopic(name, { partitions: 1, ...durability, deduplicationWindowMs: 0, deduplicateIds: false })
  const topic = backend.topic(name)
  new RecordFeed(backend, new Chance(1)).append(topic, 0, records)
  const settled = async <V>(promise: Promise<V>): Promise<V> => {
    promise.catch(() => {})
    await clock.advance(1)
    return await promise
  }
  const session = await settled(backend.connect().queues.open(name, "q", { ...explicit, ...spec }))
  const pull = async (): Promise<readonly (readonly [offset: number, deliveries: number, token: unknown])[]> =>
    (await settled(session.pull(now))).map(({ offset, deliveries, token }) => [Number(offset), deliveries, token])
  const settle = async (settlement: Settlement, confirm = false): Promise<unknown> =>
    (await settled(session.settle([settlement], { confirm })))[0]
  return { clock, backend, session, pull, settle, settled }
}

interface Rig {
  readonly clock: SimClock
  readonly backend: FaultyBackend
  readonly session: QueueSession
  readonly pull: () => Promise<readonly (readonly [offset: number, deliveries: number, token: unknown])[]>
  readonly settle: (settlement: Settlement, confirm?: boolean) => Promise<unknown>
  readonly settled: <V>(promise: Promise<V>) => Promise<V>
}

test("a message is one taker's until its wait is over, and comes with a higher number then", async () => {
  const { clock, pull, settle } = await rig()
  const first = await pull()
  assert.deepEqual(
    first.map(([offset, deliveries]) => [offset, deliveries]),
    [
      [0, 1],
      [1, 1],
      [2, 1],
    ],
  )
  assert.deepEqual(await pull(), [])
  assert.equal(await settle({ token: first[1]?.[2], verdict: "ack" }), true)
  await clock.advance(1000)
  const again = await pull()
  assert.deepEqual(
    again.map(([offset, deliveries]) => [offset, deliveries]),
    [
      [0, 2],
      [2, 2],
    ],
  )
  assert.equal(await settle({ token: first[0]?.[2], verdict: "ack" }), false)
  assert.equal(await settle({ token: again[0]?.[2], verdict: "terminate" }), true)
  assert.equal(await settle({ token: again[0]?.[2], verdict: "ack" }), false)
})

test("a nak comes back after its delay, and an extended wait begins anew", async () => {
  const { clock, pull, settle } = await rig({}, 2)
  const [one, two] = await pull()
  await settle({ token: one?.[2], verdict: "nak", delayMs: 300 })
  await clock.advance(600)
  assert.equal(await settle({ token: two?.[2], verdict: "inProgress" }), true)
  assert.deepEqual(
    (await pull()).map(([offset]) => offset),
    [0],
  )
  await clock.advance(600)
  assert.equal(await settle({ token: two?.[2], verdict: "ack" }), true)
})

test("an ack under `all` covers what was handed out before it, and `none` settles by handing out", async () => {
  const all = await rig({ ackPolicy: "all" })
  const held = await all.pull()
  await all.settle({ token: held[1]?.[2], verdict: "ack" })
  await all.clock.advance(1000)
  assert.deepEqual(
    (await all.pull()).map(([offset]) => offset),
    [2],
  )
  const none = await rig({ ackPolicy: "none" })
  assert.equal((await none.pull()).length, 3)
  await none.clock.advance(60_000)
  assert.deepEqual(await none.pull(), [])
})

test("no more than maxAckPending are handed out and not settled", async () => {
  const { pull, settle } = await rig({ maxAckPending: 2 })
  const held = await pull()
  assert.equal(held.length, 2)
  assert.deepEqual(await pull(), [])
  await settle({ token: held[0]?.[2], verdict: "ack" })
  assert.deepEqual(
    (await pull()).map(([offset]) => offset),
    [2],
  )
})

test("a crash undoes what was not confirmed, and a queue that is deleted is gone for its sessions", async () => {
  const { backend, pull, settle, settled, session } = await rig()
  const held = await pull()
  await settle({ token: held[0]?.[2], verdict: "ack" }, true)
  await settle({ token: held[1]?.[2], verdict: "ack" })
  backend.restart()
  assert.deepEqual(
    (await pull()).map(([offset, deliveries]) => [offset, deliveries]),
    [[1, 2]],
  )
  backend.queues.delete(name, "q")
  await assert.rejects(settled(session.pull(now)), { kind: "not-found" })
})
