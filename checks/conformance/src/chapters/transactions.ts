/** Chapter: transactions: records and offsets that appear together or not at all, and incarnations that fence each other. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type {
  Claim,
  OffsetOwner,
  Session,
  TopicDescription,
  TransactionHandle,
  TransactionSession,
} from "@millrace/contract"
import { until } from "../rig/deadline.ts"
import { numbered, texts } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

const timeoutMs = 60_000

export function transactionsChapter(rig: Rig): void {
  const { transactions } = rig.manifest
  // What is absent is refused: that chapter says so.
  if (!transactions.supported) return
  describe("transactions", () => {
    test("nothing of a transaction is there before its commit, then everything is, with its offsets", async () => {
      const topic = await rig.topic({ partitions: 2 })
      await rig.append(topic, 0, ["before"])
      const { session, handle } = await begun(rig)
      const stage = stager(rig, session)
      await stage(topic, 0, numbered("a", 0, 3), handle)
      await stage(topic, 1, ["b"], handle)
      await stage(topic, 0, ["a3"], handle)
      await rig.append(topic, 0, ["between"])
      assert.deepEqual(await content(rig, topic, 0), ["before", "between"])
      assert.equal((await rig.watermarks(topic, 1)).end, 0n)
      const results = await session.commit(handle)
      assert.deepEqual(
        results.map(({ partition, base, count, contiguous }) => [partition, base, count, contiguous]),
        [
          [0, 2n, 3, true],
          [1, 0n, 1, true],
          [0, 5n, 1, true],
        ],
      )
      assert.deepEqual(await content(rig, topic, 0), ["before", "between", "a0", "a1", "a2", "a3"])
      assert.deepEqual(await content(rig, topic, 1), ["b"])
      assert.deepEqual(await session.commit(handle), results, "asked again it answers alike, and stores nothing twice")
      assert.deepEqual((await content(rig, topic, 1)).length, 1)
      await session.close()
    })

    test("an aborted transaction was never there, and the next one begins afresh", async () => {
      const topic = await rig.topic()
      const { session, handle } = await begun(rig)
      const stage = stager(rig, session)
      await stage(topic, 0, ["lost"], handle)
      await session.abort(handle)
      await session.abort(handle)
      await refused(() => session.commit(handle), { kind: "transaction-aborted", outcome: "rejected" })
      const next = await session.begin()
      await stage(topic, 0, ["kept"], next)
      assert.equal((await session.commit(next))[0]?.base, 0n)
      assert.deepEqual(await content(rig, topic, 0), ["kept"])
      await session.close()
    })

    test("an empty transaction commits", async () => {
      const { session, handle } = await begun(rig)
      assert.deepEqual(await session.commit(handle), [])
      await session.close()
    })

    test("a reader that waits is woken by the commit, and sees all of it", async () => {
      const topic = await rig.topic()
      const { session, handle } = await begun(rig)
      const tail = rig.tail(topic, { 0: 0n })
      const waiting = tail.some()
      await stager(rig, session)(topic, 0, numbered("r", 0, 5), handle)
      await session.commit(handle)
      assert.deepEqual(texts(await waiting), numbered("r", 0, 5))
      await tail.close()
      await session.close()
    })

    test("a batch that is sent again within the transaction is staged once", async () => {
      const topic = await rig.topic()
      const { session, handle } = await begun(rig)
      const id = rig.batchId()
      const identity = { ...session.identity, sequence: 0 }
      for (const resend of [false, true]) {
        const batch = rig.batch(topic, 0, ["a", "b"], { id, resend })
        await rig.session.log.append(batch, { transaction: handle, identity })
        batch.release()
      }
      assert.equal((await session.commit(handle)).length, 1)
      assert.deepEqual(await content(rig, topic, 0), ["a", "b"])
      await session.close()
    })

    test("ids are deduplicated as they are outside of transactions", async (t) => {
      if (rig.manifest.append.idLookup === "none") return t.skip("this backend looks up no ids")
      const topic = await rig.topic({ deduplicateIds: true })
      await rig.append(topic, 0, [{ payload: "a", id: 7n }])
      const { session, handle } = await begun(rig)
      await stager(rig, session)(
        topic,
        0,
        [
          { payload: "again", id: 7n },
          { payload: "b", id: 8n },
        ],
        handle,
      )
      assert.equal((await session.commit(handle))[0]?.duplicates, 1)
      assert.deepEqual(await content(rig, topic, 0), ["a", "b"])
      await session.close()
    })

    test("offsets are stored with the commit, and not without it", async (t) => {
      if (!transactions.offsets.supported) return t.skip(transactions.offsets.reason)
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("m", 0, 10))
      const owner: OffsetOwner = { kind: "consumer", name: rig.name("consumer") }
      const { session, handle } = await begun(rig)
      const entry = (offset: bigint) => ({ ...at(topic, 0), offset, lineage: topic.lineage })
      await session.enlistOffsets(handle, owner, [entry(3n)])
      await session.enlistOffsets(handle, owner, [entry(5n)])
      assert.equal(await storedBy(rig.session, owner, topic), undefined)
      await session.commit(handle)
      assert.equal(await storedBy(rig.session, owner, topic), 5n)
      const next = await session.begin()
      await session.enlistOffsets(next, owner, [entry(9n)])
      await session.abort(next)
      assert.equal(await storedBy(rig.session, owner, topic), 5n)
      await session.close()
    })

    test("offsets of a claim that is void are refused, and a commit with them stores nothing", async (t) => {
      if (!transactions.offsets.supported) return t.skip(transactions.offsets.reason)
      if (!rig.manifest.groups.supported) return t.skip(rig.manifest.groups.reason)
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("m", 0, 10))
      const group = rig.name("group")
      const owner: OffsetOwner = { kind: "group", name: group }
      if (rig.manifest.catalog.groups === "objects") await rig.session.groups.create(group, topic)
      const { session, handle } = await begun(rig)
      const out = await rig.topic()
      const { membership, claim } = await joined(rig.session, group, topic)
      const entry = { ...at(topic, 0), offset: 4n, lineage: topic.lineage, claim }
      await stager(rig, session)(out, 0, ["made of 0 to 3"], handle)
      await session.enlistOffsets(handle, owner, [entry])
      await membership.leave()
      await refused(() => session.commit(handle), { kind: "not-assigned", outcome: "rejected" })
      await session.abort(handle)
      assert.deepEqual(await content(rig, out, 0), [])
      assert.equal(await storedBy(rig.session, owner, topic), undefined)
      const next = await session.begin()
      await refused(() => session.enlistOffsets(next, owner, [entry]), "not-assigned")
      await session.abort(next)
      await session.close()
    })

    test("offsets of an old history are refused", async (t) => {
      if (!transactions.offsets.supported) return t.skip(transactions.offsets.reason)
      if (rig.manifest.catalog.purge !== "restarts") return t.skip("a purge goes on counting on this backend")
      const topic = await rig.topic()
      await rig.append(topic, 0, ["a"])
      const owner: OffsetOwner = { kind: "consumer", name: rig.name("consumer") }
      const { session, handle } = await begun(rig)
      const entry = { ...at(topic, 0), offset: 1n, lineage: topic.lineage }
      await session.enlistOffsets(handle, owner, [entry])
      await rig.session.catalog.purgeTopic(topic)
      await refused(() => session.commit(handle), "history-changed")
      await session.abort(handle)
      assert.equal(await storedBy(rig.session, owner, topic), undefined)
      await session.close()
    })

    test("a topic that is deleted meanwhile spoils the whole transaction", async () => {
      const [kept, gone] = [await rig.topic(), await rig.topic()]
      const { session, handle } = await begun(rig)
      const stage = stager(rig, session)
      await stage(kept, 0, ["a"], handle)
      await stage(gone, 0, ["b"], handle)
      await rig.session.catalog.deleteTopic(gone)
      await refused(() => session.commit(handle), { kind: "not-found", says: [gone.topic], outcome: "rejected" })
      await session.abort(handle)
      assert.deepEqual(await content(rig, kept, 0), [])
      await session.close()
    })

    test("a later incarnation fences the earlier one, and aborts what it had under way", async () => {
      const topic = await rig.topic()
      const id = rig.name("tx")
      const older = await rig.session.transactions.init(id, { timeoutMs, keepPrepared: true })
      const handle = await older.begin()
      const stage = stager(rig, older)
      await stage(topic, 0, ["zombie"], handle)
      const later = await rig.session.transactions.init(id, { timeoutMs, keepPrepared: true })
      assert.ok(later.identity.epoch > older.identity.epoch || later.identity.producerId !== older.identity.producerId)
      await refused(() => stage(topic, 0, ["more"], handle), { kind: "fenced", outcome: "rejected" })
      await refused(() => older.commit(handle), { kind: "fenced", outcome: "rejected" })
      await refused(() => older.begin(), "fenced")
      const own = await later.begin()
      await stager(rig, later)(topic, 0, ["later"], own)
      await later.commit(own)
      assert.deepEqual(await content(rig, topic, 0), ["later"])
      await older.close()
      await later.close()
    })

    test("ids know nothing of each other", async () => {
      const topic = await rig.topic()
      const [one, other] = [await begun(rig), await begun(rig)]
      await stager(rig, one.session)(topic, 0, ["one"], one.handle)
      await stager(rig, other.session)(topic, 0, ["other"], other.handle)
      await other.session.commit(other.handle)
      await one.session.abort(one.handle)
      assert.deepEqual(await content(rig, topic, 0), ["other"])
      await one.session.close()
      await other.session.close()
    })

    test("a transaction that is open for too long is aborted, and its owner is told so", async () => {
      const topic = await rig.topic()
      const session = await rig.session.transactions.init(rig.name("tx"), { timeoutMs: 300, keepPrepared: false })
      const handle = await session.begin()
      const stage = stager(rig, session)
      await stage(topic, 0, ["late"], handle)
      await until("the time to be over", async () => {
        try {
          await stage(topic, 0, ["later"], handle)
        } catch (error) {
          checkedRefusal(error, { kind: "transaction-aborted", says: ["300"], outcome: "rejected" })
          return true
        }
        return undefined
      })
      await refused(() => session.commit(handle), "transaction-aborted")
      await session.abort(handle)
      assert.deepEqual(await content(rig, topic, 0), [])
      const next = await session.begin()
      await stage(topic, 0, ["in time"], next)
      await session.commit(next)
      assert.deepEqual(await content(rig, topic, 0), ["in time"])
      await session.close()
    })

    test("closing a session aborts what is open", async () => {
      const topic = await rig.topic()
      const { session, handle } = await begun(rig)
      await stager(rig, session)(topic, 0, ["lost"], handle)
      await session.close()
      await refused(() => session.commit(handle), "closed")
      assert.deepEqual(await content(rig, topic, 0), [])
    })

    test("many topics and partitions in one transaction", async () => {
      const topics = await Promise.all([rig.topic({ partitions: 10 }), rig.topic({ partitions: 10 })])
      const { session, handle } = await begun(rig)
      const stage = stager(rig, session)
      for (const topic of topics)
        for (let partition = 0; partition < 10; partition++)
          await stage(topic, partition, numbered(`${partition}-`, 0, 20), handle)
      assert.equal((await session.commit(handle)).length, 20)
      for (const topic of topics)
        for (let partition = 0; partition < 10; partition++)
          assert.deepEqual(await content(rig, topic, partition), numbered(`${partition}-`, 0, 20))
      await session.close()
    })
  })

  if (!transactions.prepare.supported) return
  describe("prepared transactions", () => {
    test("what is prepared takes nothing more, and commits or aborts as asked", async () => {
      const topic = await rig.topic()
      for (const [end, expected] of [
        ["commit", ["a"]],
        ["abort", ["a"]],
      ] as const) {
        const { session, handle } = await begun(rig)
        const stage = stager(rig, session)
        await stage(topic, 0, [end === "commit" ? "a" : "b"], handle)
        assert.match(await session.prepare(handle), /^\d+:\d+$/)
        await refused(() => stage(topic, 0, ["more"], handle), { kind: "transaction-state", outcome: "rejected" })
        await session[end](handle)
        assert.deepEqual(await content(rig, topic, 0), expected)
        await session.close()
      }
    })

    test("it outlives its session, is listed with its age, and the next incarnation completes it", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      const owner: OffsetOwner = { kind: "consumer", name: rig.name("consumer") }
      const id = rig.name("tx")
      const own = await rig.connect()
      const first = await own.transactions.init(id, { timeoutMs: 300, keepPrepared: false })
      const handle = await first.begin()
      await stager(rig, first)(topic, 0, numbered("p", 0, 3), handle)
      if (transactions.offsets.supported)
        await first.enlistOffsets(handle, owner, [{ ...at(topic, 0), offset: 1n, lineage: topic.lineage }])
      const token = await first.prepare(handle)
      await own.close()
      const listed = await until("its age to exceed the time-out of open ones", async () => {
        const found = (await rig.session.transactions.list()).find((one) => one.transactionalId === id)
        return found !== undefined && found.ageMs > 400 ? found : undefined
      })
      assert.equal(listed.token, token)
      if (listed.records !== undefined) assert.equal(listed.records, 3)
      const next = await rig.session.transactions.init(id, { timeoutMs, keepPrepared: true })
      assert.equal(next.prepared, token)
      await refused(() => next.begin(), { kind: "transaction-state", says: ["prepared"] })
      assert.equal(await next.complete(token), "committed")
      assert.equal(next.prepared, undefined)
      assert.deepEqual(await content(rig, topic, 0), numbered("p", 0, 3))
      if (transactions.offsets.supported) assert.equal(await storedBy(rig.session, owner, topic), 1n)
      assert.ok(!(await rig.session.transactions.list()).some((one) => one.transactionalId === id))
      await refused(() => next.complete(token), { kind: "transaction-state", outcome: "rejected" })
      await next.commit(await next.begin())
      await next.close()
    })

    test("another token aborts it; so does an incarnation that does not keep it", async () => {
      const topic = await rig.topic()
      for (const keepPrepared of [true, false]) {
        const id = rig.name("tx")
        const first = await rig.session.transactions.init(id, { timeoutMs, keepPrepared: false })
        const handle = await first.begin()
        await stager(rig, first)(topic, 0, ["lost"], handle)
        const token = await first.prepare(handle)
        const next = await rig.session.transactions.init(id, { timeoutMs, keepPrepared })
        await refused(() => first.commit(handle), "fenced")
        if (keepPrepared) assert.equal(await next.complete(`${token}9`), "aborted")
        else assert.equal(next.prepared, undefined)
        assert.deepEqual(await content(rig, topic, 0), [])
        assert.ok(!(await rig.session.transactions.list()).some((one) => one.transactionalId === id))
        await first.close()
        await next.close()
      }
    })

    test("offsets that it holds can neither be loaded nor stored before it ended", async (t) => {
      if (!transactions.offsets.supported) return t.skip(transactions.offsets.reason)
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("m", 0, 10))
      const owner: OffsetOwner = { kind: "consumer", name: rig.name("consumer") }
      const { session, handle } = await begun(rig)
      const entry = { ...at(topic, 0), offset: 4n, lineage: topic.lineage }
      await session.enlistOffsets(handle, owner, [entry])
      await session.prepare(handle)
      const [loaded] = await rig.session.offsets.load(owner, [at(topic, 0)])
      checkedRefusal(loaded, {
        kind: (loaded as { kind: "throttled" }).kind,
        says: [handle.transactionalId],
        retryable: true,
      })
      const [stored] = await rig.session.offsets.store(owner, [{ ...entry, offset: 2n }])
      checkedRefusal(stored, {
        kind: (stored as { kind: "throttled" }).kind,
        says: [handle.transactionalId],
        retryable: true,
      })
      await session.commit(handle)
      assert.equal(await storedBy(rig.session, owner, topic), 4n)
      await session.close()
    })
  })
}

interface Begun {
  readonly session: TransactionSession
  readonly handle: TransactionHandle
}

async function begun(rig: Rig): Promise<Begun> {
  const session = await rig.session.transactions.init(rig.name("tx"), { timeoutMs, keepPrepared: false })
  return { session, handle: await session.begin() }
}

type Stage = (
  topic: TopicDescription,
  partition: number,
  drafts: Parameters<Rig["append"]>[2],
  transaction: TransactionHandle,
) => Promise<void>

/** Appends within transactions of a session, numbered as the session's identity has it. */
function stager(rig: Rig, session: TransactionSession): Stage {
  const sequences = new Map<string, number>()
  return async (topic, partition, drafts, transaction) => {
    const { producerId, epoch } = session.identity
    const key = `${producerId}:${epoch}/${topic.stream}/${topic.topic}/${partition}`
    const sequence = sequences.get(key) ?? 0
    const answer = await rig.append(topic, partition, drafts, {
      transaction,
      identity: { producerId, epoch, sequence },
    })
    sequences.set(key, sequence + drafts.length)
    assert.equal(answer.base, undefined, "offsets are told by the commit")
  }
}

async function content(rig: Rig, topic: TopicDescription, partition: number): Promise<string[]> {
  return texts(await rig.readAll(topic, partition))
}

async function storedBy(session: Session, owner: OffsetOwner, topic: TopicDescription): Promise<bigint | undefined> {
  const [found] = await session.offsets.load(owner, [at(topic, 0)])
  if (found instanceof Error) throw found
  return found?.offset
}

async function joined(session: Session, group: string, topic: TopicDescription) {
  const membership = await session.groups.join(group, [topic], { sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 10_000 })
  for await (const change of membership.changes) {
    const claim: Claim | undefined = change.assigned[0]
    if (claim !== undefined) return { membership, claim }
  }
  throw new Error("the membership ended before anything was assigned")
}
