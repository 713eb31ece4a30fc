/** The model of transactions keeps the contract that it stands for. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { FencedError, Headers, type TransactionSession } from "@millrace/contract"
import { numbered } from "../record-number.ts"
import { SimClock } from "../sim-clock.ts"
import { FaultyBackend } from "./faulty-backend.ts"
import type { FaultySession } from "./faulty-session.ts"
import { manifestOf } from "./manifests.ts"
import { SimBatch } from "./sim-batch.ts"

const name = { stream: "s", topic: "a" }
const options = { timeoutMs: 1000, keepPrepared: false }

class Rig {
  readonly clock: SimClock = new SimClock()
  readonly backend: FaultyBackend = new FaultyBackend({
    clock: this.clock,
    manifest: manifestOf("sequence", { transactions: true, groups: true }),
  })
  readonly session: FaultySession = this.backend.connect()
  #numbers = 0

  constructor() {
    this.backend.createStream("s")
    const durability = { durability: "synced", offsetDurability: "synced" } as const
    this.backend.createTopic(name, { partitions: 1, ...durability, deduplicationWindowMs: 0, deduplicateIds: false })
  }

  async settled<V>(promise: Promise<V>): Promise<V> {
    promise.catch(() => {})
    await this.clock.advance(1)
    return await promise
  }

  init(keepPrepared = false): Promise<TransactionSession> {
    return this.settled(this.session.transactions.init("t", { ...options, keepPrepared }))
  }

  get stored(): number {
    return this.backend.topic(name).log(0)?.records.length ?? 0
  }

  async stage(
    session: TransactionSession,
    handle: Awaited<ReturnType<TransactionSession["begin"]>>,
    sequence: number,
  ): Promise<void> {
    const timestampMicros = this.clock.nowMicros()
    const id = BigInt(++this.#numbers)
    const content = [{ payload: numbered(this.#numbers), key: null, headers: Headers.empty, id, timestampMicros }]
    const stamp = { id, timestampMicros, resend: false }
    const batch = new SimBatch(
      this.backend.topic(name).description,
      { partition: 0, content, stamp, bytes: 10 },
      nobody,
    )
    const identity = { ...session.identity, sequence }
    for (let times = 0; times < 2; times++) {
      await this.settled(this.session.log.append(batch, { identity, transaction: handle }))
    }
  }
}

const nobody = { made: (): void => {}, released: (): void => {} }

test("what is staged appears with its commit, once, and a commit that is asked for again is answered alike", async () => {
  const rig = new Rig()
  const session = await rig.init()
  const handle = await rig.settled(session.begin())
  await rig.stage(session, handle, 0)
  await rig.stage(session, handle, 1)
  assert.equal(rig.stored, 0)
  const results = await rig.settled(session.commit(handle))
  assert.equal(rig.stored, 2)
  assert.deepEqual(await rig.settled(session.commit(handle)), results)
  await assert.rejects(rig.settled(session.abort(handle)), { kind: "transaction-state" })
  const other = await rig.settled(session.begin())
  await rig.stage(session, other, 0)
  await rig.settled(session.abort(other))
  await rig.settled(session.abort(other))
  assert.equal(rig.stored, 2)
})

test("a new incarnation fences the older one, and a transaction that is open for too long is aborted", async () => {
  const rig = new Rig()
  const old = await rig.init()
  const handle = await rig.settled(old.begin())
  const session = await rig.init()
  await assert.rejects(rig.settled(old.commit(handle)), FencedError)
  await assert.rejects(rig.stage(old, handle, 0), FencedError)
  const late = await rig.settled(session.begin())
  await rig.stage(session, late, 0)
  await rig.clock.advance(1001)
  await assert.rejects(rig.settled(session.commit(late)), { kind: "transaction-aborted" })
  assert.equal(rig.stored, 0)
})

test("what is prepared survives a restart and is completed by its token alone", async () => {
  const rig = new Rig()
  for (const [token, ending, stored] of [
    ["another", "aborted", 0],
    [undefined, "committed", 1],
  ] as const) {
    const first = await rig.init()
    const handle = await rig.settled(first.begin())
    await rig.stage(first, handle, 0)
    const own = await rig.settled(first.prepare(handle))
    rig.backend.restart()
    const list = await rig.settled(rig.session.transactions.list())
    assert.deepEqual(
      list.map(({ token: kept, records }) => [kept, records]),
      [[own, 1]],
    )
    const next = await rig.init(true)
    assert.equal(next.prepared, own)
    assert.equal(await rig.settled(next.complete(token ?? own)), ending)
    assert.equal(next.prepared, undefined)
    assert.equal(rig.stored, stored)
  }
})

test("offsets are stored with the commit, and what is prepared holds them", async () => {
  const rig = new Rig()
  const session = await rig.init()
  const owner = { kind: "consumer", name: "c" } as const
  const { lineage } = rig.backend.topic(name).description
  const place = { ...name, partition: 0 }
  const handle = await rig.settled(session.begin())
  await rig.settled(session.enlistOffsets(handle, owner, [{ ...place, lineage, offset: 3n }]))
  assert.deepEqual(await rig.settled(rig.session.offsets.load(owner, [place])), [undefined])
  await rig.settled(session.prepare(handle))
  const [held] = await rig.settled(rig.session.offsets.load(owner, [place]))
  assert.deepEqual(held instanceof Error && { kind: held.kind, retryable: held.retryable }, {
    kind: "transaction-state",
    retryable: true,
  })
  await rig.settled(session.commit(handle))
  assert.deepEqual(await rig.settled(rig.session.offsets.load(owner, [place])), [{ ...place, lineage, offset: 3n }])
})
