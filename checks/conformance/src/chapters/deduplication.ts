/** Chapter: what is recognised as already there: by producer identity and sequence, and by message id. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { AppendResult, Identity, SealedBatch } from "@millrace/contract"
import { numbered, texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import type { Rig } from "../rig/rig.ts"

export function deduplicationChapter(rig: Rig): void {
  describe("producer identity", () => {
    const bySequence = (): string | undefined =>
      rig.manifest.append.dedup === "sequence"
        ? undefined
        : `this backend deduplicates by ${rig.manifest.append.dedup}, not by sequence`

    test("every identity is another, and a bump raises the epoch of the same one", async (t) => {
      const reason = bySequence()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const one = await rig.session.log.identify(topic)
      const other = await rig.session.log.identify(topic)
      assert.notEqual(one.producerId, other.producerId)
      const bumped = await rig.session.log.identify(topic, one)
      assert.equal(bumped.producerId, one.producerId)
      assert.ok(bumped.epoch > one.epoch)
    })

    test("a batch that is sent again is answered as a duplicate, with its place, and stored once", async (t) => {
      const reason = bySequence()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const identity = await rig.session.log.identify(topic)
      const first = rig.batch(topic, 0, ["a", "b"])
      const second = rig.batch(topic, 0, ["c"])
      const send = sender(rig, identity)
      const confirmation = await send(first, 0)
      await send(second, 2)
      const again = await send(first, 0)
      counted(rig, again, 2)
      assert.equal(again.base, confirmation.base)
      counted(rig, await send(second, 2), 1)
      first.release()
      second.release()
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b", "c"])
    })

    test("the newest batches up to the in-flight limit are all recognised", async (t) => {
      const reason = bySequence()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const identity = await rig.session.log.identify(topic)
      const send = sender(rig, identity)
      const batches = Array.from({ length: rig.manifest.append.inFlight.offsets }, (_, index) =>
        rig.batch(topic, 0, numbered("r", index * 3, index * 3 + 3)),
      )
      const confirmations = await Promise.all(batches.map((batch, index) => send(batch, index * 3)))
      for (const [index, batch] of batches.entries()) {
        const again = await send(batch, index * 3)
        counted(rig, again, 3)
        assert.equal(again.base, confirmations[index]?.base)
        batch.release()
      }
      assert.deepEqual(texts(await rig.readAll(topic, 0)), numbered("r", 0, batches.length * 3))
    })

    test("a gap in the sequence is refused and stores nothing", async (t) => {
      const reason = bySequence()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const send = sender(rig, await rig.session.log.identify(topic))
      await sendOnce(send, rig.batch(topic, 0, ["a", "b"]), 0)
      const gap = rig.batch(topic, 0, ["d"])
      await refused(() => send(gap, 3), { kind: "sequence", outcome: "rejected", retryable: false })
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b"])
      await sendOnce(send, rig.batch(topic, 0, ["c"]), 2)
      await sendOnce(send, gap, 3)
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b", "c", "d"])
    })

    test("of batches in flight together none lands behind a missing one", async (t) => {
      const reason = bySequence()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const send = sender(rig, await rig.session.log.identify(topic))
      const [a, c, d] = [rig.batch(topic, 0, ["a"]), rig.batch(topic, 0, ["c"]), rig.batch(topic, 0, ["d"])]
      const outcomes = await Promise.allSettled([send(a, 0), send(c, 2), send(d, 3)])
      assert.deepEqual(
        outcomes.map((outcome) => outcome.status),
        ["fulfilled", "rejected", "rejected"],
      )
      for (const batch of [a, c, d]) batch.release()
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a"])
    })

    test("an older epoch is fenced, the newer starts at sequence 0", async (t) => {
      const reason = bySequence()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const old = await rig.session.log.identify(topic)
      await sendOnce(sender(rig, old), rig.batch(topic, 0, ["a"]), 0)
      const bumped = await rig.session.log.identify(topic, old)
      await sendOnce(sender(rig, bumped), rig.batch(topic, 0, ["b"]), 0)
      const late = rig.batch(topic, 0, ["late"])
      await refused(() => sender(rig, old)(late, 1), { kind: "fenced", outcome: "rejected" })
      late.release()
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b"])
    })

    test("sequences are kept for each partition, and for each life of a topic", async (t) => {
      const reason = bySequence()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic({ partitions: 2 })
      const identity = await rig.session.log.identify(topic)
      const send = sender(rig, identity)
      await sendOnce(send, rig.batch(topic, 0, ["a"]), 0)
      await sendOnce(send, rig.batch(topic, 1, ["b"]), 0)
      await rig.session.catalog.deleteTopic(topic)
      const recreated = await rig.session.catalog.createTopic(topic, rig.spec({ partitions: 2 }))
      await sendOnce(send, rig.batch(recreated, 0, ["c"]), 0)
      assert.deepEqual(texts(await rig.readAll(recreated, 0)), ["c"])
    })

    test("a batch is recognised from another session, too", async (t) => {
      const reason = bySequence() ?? rig.under.isolated
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const identity = await rig.session.log.identify(topic)
      await sendOnce(sender(rig, identity), rig.batch(topic, 0, ["a"]), 0)
      const other = await rig.connect()
      const batch = rig.batch(topic, 0, ["a"], { session: other })
      const answer = await other.log.append(batch, { identity: { ...identity, sequence: 0 } })
      counted(rig, answer, 1)
      batch.release()
      await other.close()
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a"])
    })
  })

  describe("message ids", () => {
    const byId = (): string | undefined =>
      rig.manifest.append.idLookup === "none" ? "this backend looks up no ids" : undefined

    test("records of a resend that are already there are left out", async (t) => {
      const reason = byId()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const original = rig.batch(topic, 0, ["a", "b", "c"])
      const records = original.records()
      await rig.session.log.append(original, {})
      original.release()
      const again = rig.batch(topic, 0, records.map(asDraft), { resend: true })
      const answer = await rig.session.log.append(again, {})
      again.release()
      assert.equal(answer.duplicates, 3)
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b", "c"])
    })

    test("of a resend that is partly there only the rest is stored, in order and with its ids", async (t) => {
      const reason = byId()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const id = rig.batchId()
      await appended(rig, rig.batch(topic, 0, ["a", "b"], { id }))
      const drafts = ["a", "b", "c", "d"].map((payload, index) => ({ payload, id: id + BigInt(index) }))
      const answer = await appended(rig, rig.batch(topic, 0, drafts, { resend: true }))
      assert.equal(answer.duplicates, 2)
      const seen = await rig.readAll(topic, 0)
      assert.deepEqual(texts(seen), ["a", "b", "c", "d"])
      assert.deepEqual(
        seen.map((record) => record.id),
        drafts.map((draft) => draft.id),
      )
    })

    test("a resend finds ids that the caller gave", async (t) => {
      const reason = byId()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic()
      const drafts = [
        { payload: "a", id: (77n << 90n) | 1n },
        { payload: "b", id: (77n << 90n) | 2n },
      ]
      await appended(rig, rig.batch(topic, 0, drafts))
      const answer = await appended(rig, rig.batch(topic, 0, drafts, { resend: true }))
      assert.equal(answer.duplicates, 2)
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b"])
    })

    test("where the topic looks up ids, a given id is stored once, also within one batch", async (t) => {
      const reason = rig.manifest.append.idLookup === "window" ? undefined : "this backend looks up ids of resends only"
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic({ deduplicateIds: true })
      const id = (99n << 80n) | 3n
      await appended(rig, rig.batch(topic, 0, [{ payload: "a", id }]))
      const answer = await appended(rig, rig.batch(topic, 0, ["b", { payload: "a again", id }, "c"]))
      assert.equal(answer.duplicates, 1)
      const twin = (99n << 80n) | 4n
      await appended(
        rig,
        rig.batch(topic, 0, [
          { payload: "d", id: twin },
          { payload: "d again", id: twin },
        ]),
      )
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b", "c", "d"])
    })

    test("where the topic does not look up ids, equal ids that are no resend are both stored", async (t) => {
      if (rig.manifest.append.dedup === "idWindow") return t.skip("this backend looks up every id")
      const topic = await rig.topic({ deduplicateIds: false })
      const id = (99n << 80n) | 5n
      await appended(rig, rig.batch(topic, 0, [{ payload: "a", id }]))
      const answer = await appended(rig, rig.batch(topic, 0, [{ payload: "b", id }]))
      assert.equal(answer.duplicates, 0)
      assert.deepEqual(texts(await rig.readAll(topic, 0)), ["a", "b"])
    })

    test("ids are looked up in their own partition and topic only", async (t) => {
      const reason = byId()
      if (reason !== undefined) return t.skip(reason)
      const topic = await rig.topic({ partitions: 2, deduplicateIds: true })
      const neighbour = await rig.topic({ deduplicateIds: true })
      const draft = { payload: "a", id: (123n << 80n) | 9n }
      await appended(rig, rig.batch(topic, 0, [draft]))
      assert.equal((await appended(rig, rig.batch(neighbour, 0, [draft]))).duplicates, 0)
    })
  })
}

/** A resend is counted where the backend tells; a silent one answers as at the first time. */
function counted(rig: Rig, answer: AppendResult, duplicates: number): void {
  const { duplicates: tells } = rig.manifest.append
  assert.ok(
    answer.duplicates === duplicates || (tells === "silent" && answer.duplicates === 0),
    `${answer.duplicates} duplicates were counted, of ${duplicates}`,
  )
}

type Send = (batch: SealedBatch, sequence: number) => ReturnType<Rig["session"]["log"]["append"]>

function sender(rig: Rig, identity: Identity): Send {
  return (batch, sequence) => rig.session.log.append(batch, { identity: { ...identity, sequence } })
}

async function sendOnce(send: Send, batch: SealedBatch, sequence: number): ReturnType<Send> {
  try {
    return await send(batch, sequence)
  } finally {
    batch.release()
  }
}

async function appended(rig: Rig, batch: SealedBatch): ReturnType<Send> {
  try {
    return await rig.session.log.append(batch, {})
  } finally {
    batch.release()
  }
}

function asDraft(record: ReturnType<SealedBatch["records"]>[number]): {
  payload: Uint8Array | null
  id: bigint
} {
  if (record.id === undefined) throw new Error("a record of a sealed batch has no id")
  return { payload: record.payload, id: record.id }
}
