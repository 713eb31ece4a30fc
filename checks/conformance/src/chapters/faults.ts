/** Chapter: what changes under a live reader or writer, and closing with everything under way. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { MillraceError, type Session } from "@millrace/contract"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered, texts } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

const longMs = 60_000

export function faultsChapter(rig: Rig): void {
  describe("changes under a live reader", () => {
    test("a deleted topic ends its own partitions, and no others", async () => {
      const [doomed, safe] = [await rig.topic(), await rig.topic()]
      const reader = rig.session.log.openReader({ isolation: "committed" })
      reader.set([
        { ...at(doomed, 0), offset: 0n, lineage: doomed.lineage },
        { ...at(safe, 0), offset: 0n, lineage: safe.lineage },
      ])
      const limits = { maxRecords: 10, maxBytes: 100_000, minRecords: 1, maxWaitMs: longMs }
      const poll = reader.next(limits)
      await rig.session.catalog.deleteTopic(doomed)
      const reads = await settlesWithin("a poll whose topic was deleted", poll)
      const [bad] = reads.filter((read) => read.topic === doomed.topic)
      checkedRefusal(bad?.error, { kind: "not-found", says: [doomed.topic] })
      await rig.append(safe, 0, ["still here"])
      const [good] = await settlesWithin("the next poll", reader.next(limits))
      assert.ok(good !== undefined && good.error === undefined)
      assert.equal(good.topic, safe.topic)
      await reader.close()
    })

    test("a purge is told as a changed history, or goes on counting", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("old", 0, 3))
      const tail = rig.tail(topic, { 0: 0n })
      await tail.take(3)
      const poll = tail.next({ maxWaitMs: longMs })
      await rig.session.catalog.purgeTopic(topic)
      const purged = await rig.session.catalog.describeTopic(topic)
      await rig.append(purged, 0, numbered("new", 0, 5))
      const seen = await poll
      if (rig.manifest.catalog.purge === "trims") {
        assert.deepEqual(texts(seen.length > 0 ? seen : await tail.some()), numbered("new", 0, 5))
      } else {
        assert.deepEqual(seen, [], "records of the new history came under the old lineage")
        checkedRefusal(tail.errors[0]?.error, { kind: "history-changed", says: [topic.topic] })
        tail.set({ 0: 0n }, purged.lineage)
        assert.deepEqual(texts(await tail.take(5)), numbered("new", 0, 5))
      }
      await tail.close()
    })

    test("a recreated topic never passes for the old one, though its end lies further", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("old", 0, 3))
      const tail = rig.tail(topic, { 0: 0n })
      await tail.take(3)
      await rig.session.catalog.deleteTopic(topic)
      const recreated = await rig.session.catalog.createTopic(topic, rig.spec())
      await rig.append(recreated, 0, numbered("new", 0, 9))
      const error = await tail.failure(0)
      assert.ok(["history-changed", "not-found"].includes(error.kind), `${error.kind}: ${error.message}`)
      tail.set({ 0: 0n }, recreated.lineage)
      tail.errors.length = 0
      assert.deepEqual(texts(await tail.take(9)), numbered("new", 0, 9))
      await tail.close()
    })

    test("a trim under a live reader moves it to an error or leaves it right, never to a gap", async (t) => {
      const capability = rig.manifest.catalog.trim
      if (!capability.supported) return t.skip(capability.reason)
      const topic = await rig.topic()
      for (let index = 0; index < 40; index++) await rig.append(topic, 0, [`r${index}`])
      const tail = rig.tail(topic, { 0: 0n })
      const seen = texts(await tail.take(5, { maxRecords: 5 }))
      await rig.session.catalog.trim(at(topic, 0), 30n)
      while (tail.errors.length === 0 && seen.length < 40) seen.push(...texts(await tail.next({ maxRecords: 5 })))
      assert.deepEqual(seen, numbered("r", 0, seen.length), "a gap that nobody was told of")
      if (seen.length < 40) checkedRefusal(tail.errors[0]?.error, "offset-out-of-range")
      await tail.close()
    })
  })

  describe("closing", () => {
    test("close settles everything that is under way", async () => {
      const session = await rig.connect("fresh")
      const topic = await rig.topic({ partitions: 2 }, session)
      const tail = rig.tail(topic, { 0: 0n, 1: 0n }, session)
      const pending: Promise<unknown>[] = [tail.next({ maxWaitMs: longMs })]
      for (let index = 0; index < 50; index++) pending.push(rig.append(topic, index % 2, [`r${index}`], { session }))
      pending.push(session.catalog.describeTopic(topic), session.log.watermarks([at(topic, 0)]))
      if (rig.manifest.groups.supported) {
        await session.groups.create("g", topic)
        const membership = await session.groups.join("g", [topic], {
          sessionTimeoutMs: 10_000,
          rebalanceTimeoutMs: 10_000,
        })
        pending.push(drained(membership.changes))
      }
      pending.push(rig.append(topic, 0, ["last"], { session }))
      const closing = session.close()
      const outcomes = await settlesWithin("all that was pending at close", Promise.allSettled(pending))
      await settlesWithin("close", closing)
      for (const outcome of outcomes) {
        if (outcome.status === "rejected") {
          assert.ok(outcome.reason instanceof MillraceError, `${outcome.reason} is not a MillraceError`)
        }
      }
    })

    test("after close every call fails as closed, and a second close is harmless", async () => {
      const session = await rig.connect("fresh")
      const topic = await rig.topic({}, session)
      const batch = rig.batch(topic, 0, ["a"], { session })
      const reader = session.log.openReader({ isolation: "committed" })
      await settlesWithin("close", Promise.all([session.close(), session.close()]))
      await settlesWithin("another close", session.close())
      for (const [name, call] of calls(session, rig, topic, batch, reader)) {
        const error = await refused(() => settlesWithin(name, Promise.resolve().then(call)), "closed")
        assert.equal(error.retryable, false)
      }
      batch.release()
    })

    test("a session closed at any moment leaves each call settled once", async () => {
      for (let round = 0; round < 6; round++) {
        const session = await rig.connect("fresh")
        const topic = await rig.topic({}, session)
        const tail = rig.tail(topic, { 0: 0n }, session)
        const calls = [
          ...Array.from({ length: 10 }, (_, index) => rig.append(topic, 0, numbered(`${index}`, 0, 20), { session })),
          tail.next({ maxWaitMs: longMs }),
        ]
        for (let turn = 0; turn < round; turn++) await new Promise((resolve) => setImmediate(resolve))
        const closed = session.close()
        for (const outcome of await settlesWithin("calls at close", Promise.allSettled(calls))) {
          if (outcome.status === "rejected") assert.ok(outcome.reason instanceof MillraceError, String(outcome.reason))
        }
        await settlesWithin("close", closed)
      }
    })

    test("what was confirmed before a close is there after it", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      const session = await rig.connect()
      const results = Array.from({ length: 30 }, (_, index) => rig.append(topic, 0, [`r${index}`], { session }))
      const closed = session.close()
      const outcomes = await Promise.allSettled(results)
      await closed
      const seen = texts(await rig.readAll(topic, 0))
      const confirmed = numbered("r", 0, 30).filter((_, index) => outcomes[index]?.status === "fulfilled")
      assert.deepEqual(
        seen.filter((one) => confirmed.includes(one)),
        confirmed,
      )
    })

    test("a connect that is aborted before it begins is cancelled", async () => {
      const target = await rig.under.target()
      await refused(
        () => rig.under.driver.connect(target, { timeoutMs: 5_000, signal: AbortSignal.abort() }),
        "cancelled",
      )
    })
  })
}

/** One call of every facet. */
function calls(
  session: Session,
  rig: Rig,
  topic: Awaited<ReturnType<Rig["topic"]>>,
  batch: ReturnType<Rig["batch"]>,
  reader: ReturnType<Session["log"]["openReader"]>,
): [string, () => unknown][] {
  const owner = { kind: "consumer", name: "x" } as const
  const join = { sessionTimeoutMs: 1_000, rebalanceTimeoutMs: 1_000 }
  const entry = { ...at(topic, 0), offset: 0n, lineage: topic.lineage }
  const all: [string, () => unknown][] = [
    ["createStream", () => session.catalog.createStream("after-close")],
    ["createTopic", () => session.catalog.createTopic({ stream: topic.stream, topic: "new" }, rig.spec())],
    ["describeTopic", () => session.catalog.describeTopic(topic)],
    ["listStreams", () => session.catalog.listStreams()],
    ["listTopics", () => session.catalog.listTopics(topic.stream)],
    ["purgeTopic", () => session.catalog.purgeTopic(topic)],
    ["deleteTopic", () => session.catalog.deleteTopic(topic)],
    ["identify", () => session.log.identify(topic)],
    ["append", () => session.log.append(batch, {})],
    ["next", () => reader.next({ maxRecords: 1, maxBytes: 1, minRecords: 1, maxWaitMs: 0 })],
    ["locate", () => session.log.locate([{ ...at(topic, 0), at: { kind: "end" } }])],
    ["watermarks", () => session.log.watermarks([at(topic, 0)])],
    ["load", () => session.offsets.load(owner, [at(topic, 0)])],
    ["store", () => session.offsets.store(owner, [entry])],
    ["delete", () => session.offsets.delete(owner, [at(topic, 0)])],
  ]
  if (rig.manifest.groups.supported) {
    all.push(
      ["group create", () => session.groups.create("g", topic)],
      ["group describe", () => session.groups.describe("g", topic)],
      ["group join", () => session.groups.join("g", [topic], join)],
      ["group delete", () => session.groups.delete("g", topic)],
    )
  }
  return all
}

async function drained(changes: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of changes);
}
