/** Chapter: the life of a group's filter, and what the group's consumers and readers make of it, through the public API. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Filter, GroupReader, MatchedPage, Message, Topic } from "millrace"
import { type ClientRig, encode, nothingComes, take } from "../rig/client-rig.ts"
import { patienceMs, until } from "../rig/deadline.ts"
import { text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

const atLeast = (value: number): Filter => ({ where: { path: "n", op: "gte", value } })

/** Records `{"n": from}` … to partition 0. */
async function put(topic: Topic, from: number, to: number, partition = 0): Promise<void> {
  const payloads = []
  for (let n = from; n < to; n++) payloads.push(encode(JSON.stringify({ n })))
  await topic.producer().sendBatch(payloads, { partition })
}

function numbers(messages: readonly Message[]): number[] {
  return messages.map((message) => (JSON.parse(text(message.payload)) as { n: number }).n)
}

async function page(reader: GroupReader): Promise<MatchedPage> {
  return reader.nextWithin(patienceMs)
}

export function filtersChapter(rig: ClientRig): void {
  describe("filters of groups", () => {
    test("a group without one reads everything, and asking makes nothing", async () => {
      const topic = await rig.topic()
      await put(topic, 0, 3)
      const group = topic.consumerGroup("all")
      assert.equal(await group.filter().get(), undefined)
      assert.deepEqual(await group.filter().revisions(), { revisions: [], total: 0, newest: 0 })
      const consumer = await group.consumer()
      assert.deepEqual(numbers(await take(consumer, 3)), [0, 1, 2])
      await consumer.shutdown()
    })

    test("configured, its consumers get what it selects, and progress covers what it leaves out", async () => {
      const topic = await rig.topic()
      await put(topic, 0, 10)
      const group = topic.consumerGroup("some")
      const binding = await group.filter().configure({ where: { path: "n", op: "in", value: [3, 6] } })
      assert.deepEqual(
        {
          revision: binding.revision,
          enabled: binding.enabled,
          codec: binding.filter.codec,
          fault: binding.filter.fault,
        },
        { revision: 1, enabled: true, codec: "json", fault: "stop" },
      )
      assert.match(binding.digest, /^[0-9a-f]{64}$/)
      assert.deepEqual(await group.filter().get(), binding)
      const consumer = await group.consumer({ commitPolicy: { kind: "each" } })
      assert.deepEqual(numbers(await take(consumer, 2)), [3, 6])
      await nothingComes(consumer)
      await until("progress to cover the end", async () => {
        const [lag] = await consumer.lag()
        return lag?.lag === 0n ? true : undefined
      })
      await consumer.shutdown()
      // Another group reads everything, and so does a consumer outside any group.
      const other = await topic.consumerGroup("other").consumer()
      assert.equal((await take(other, 10)).length, 10)
      await other.shutdown()
      const raw = topic.consumer("some", 0)
      assert.equal((await take(raw, 10)).length, 10)
      await raw.shutdown()
    })

    test("the same filter again changes nothing; another one is a conflict with both digests", async () => {
      const group = (await rig.topic()).consumerGroup("one")
      const first = await group.filter().configure(atLeast(5))
      assert.deepEqual(
        await group.filter().configure({ codec: "json", where: { value: 5, op: "gte", path: "n" } }),
        first,
        "defaults and the order of keys make no difference",
      )
      const conflict = await refused(() => group.filter().configure(atLeast(6)), {
        kind: "already-exists",
        says: [group.name, first.digest],
        outcome: "rejected",
      })
      assert.equal(conflict.context.reason, "conflict")
      assert.deepEqual(await group.filter().get(), first)
    })

    test("revised with the revision that is expected, enabled, disabled, put back, released, deleted", async () => {
      const topic = await rig.topic()
      const filter = topic.consumerGroup("life").filter()
      await filter.configure(atLeast(1))
      const draft = await filter.revise(1, atLeast(2))
      assert.deepEqual({ revision: draft.revision, state: draft.state }, { revision: 2, state: "draft" })
      await refused(() => filter.revise(1, atLeast(3)), { kind: "already-exists", says: ["revision 1", "2"] })
      assert.equal((await filter.get())?.revision, 1)
      assert.equal((await filter.setRevisionEnabled(2, true)).state, "enabled")
      assert.equal((await filter.get())?.revision, 2)
      await filter.setRevisionEnabled(1, true)
      assert.equal((await filter.get())?.revision, 1)
      await filter.setRevisionEnabled(1, false)
      assert.equal((await filter.get())?.enabled, false)
      await filter.release()
      assert.equal(await filter.get(), undefined)
      await refused(() => filter.release(), "not-found")
      await refused(() => filter.configureWith({ revision: 1 }), { kind: "invalid", says: ["revision 1", "disabled"] })
      await refused(() => filter.configureWith({ revision: 9 }), { kind: "not-found", says: ["revision 9"] })
      assert.equal((await filter.configureWith({ revision: 2 })).revision, 2)
      const all = await filter.revisions()
      assert.deepEqual(
        all.revisions.map(({ revision, state }) => `${revision} ${state}`),
        ["2 enabled", "1 disabled"],
      )
      assert.deepEqual(await filter.revisions(2, 1), { ...all, revisions: all.revisions.slice(1) })
      await filter.delete()
      assert.equal(await filter.get(), undefined)
      await refused(() => filter.delete(), "not-found")
      assert.deepEqual(await filter.revisions(), { revisions: [], total: 0, newest: 2 })
      assert.equal((await filter.configure(atLeast(1))).revision, 3, "numbers are not given out again")
    })

    test("an operation that is named is carried out once, and answers the same again", async () => {
      const filter = (await rig.topic()).consumerGroup("named").filter()
      const operation = rig.name("operation")
      const first = await filter.configureAs(operation, { filter: atLeast(1) })
      assert.deepEqual(await filter.configureAs(operation, { filter: atLeast(1) }), first)
      await filter.delete()
      assert.deepEqual(await filter.configureAs(operation, { filter: atLeast(1) }), first)
      assert.equal(await filter.get(), undefined, "it was not carried out again")
      await refused(() => filter.configureAs(operation, { filter: atLeast(2) }), { kind: "invalid", says: [operation] })
      await refused(() => filter.configureAs("", { filter: atLeast(2) }), { kind: "invalid", says: ["operation id"] })
    })

    test("bad filters and arguments are refused with the path of the fault, before anything is asked", async () => {
      const filter = rig.handle().consumerGroup("bad").filter()
      const bad = {
        where: {
          all: [
            { path: "n", op: "gt", value: 1 },
            { path: "n", op: "greater", value: 1 },
          ],
        },
      }
      await refused(() => filter.configure(bad as unknown as Filter), {
        kind: "invalid",
        says: ["filter.where.all[1]"],
      })
      await refused(() => filter.revise(0, bad as unknown as Filter), {
        kind: "invalid",
        says: ["filter.where.all[1]"],
      })
      await refused(() => filter.revise(-1, atLeast(1)), { kind: "invalid", says: ["-1"] })
      await refused(() => filter.setRevisionEnabled(0, true), { kind: "invalid", says: ["revision 0"] })
      await refused(() => filter.revisions(0), { kind: "invalid", says: ["page 0"] })
      await refused(() => filter.revisions(1, 101), { kind: "invalid", says: ["101"] })
      await refused(() => filter.configureWith({} as never), { kind: "invalid", says: ["revision"] })
    })

    test("two clients that revise at once: exactly one is told that it won, and both then see the same", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      const other = await rig.connect()
      const filters = [topic, rig.through(other, topic)].map((one) => one.consumerGroup("race").filter())
      await filters[0]?.configure(atLeast(0))
      for (let newest = 1; newest < 4; newest++) {
        const outcomes = await Promise.allSettled(
          filters.map((filter, index) => filter.revise(newest, atLeast(10 * newest + index))),
        )
        assert.deepEqual(outcomes.map(({ status }) => status).sort(), ["fulfilled", "rejected"])
        const winner = outcomes.findIndex(({ status }) => status === "fulfilled")
        for (const filter of filters) {
          const [revision] = (await filter.revisions()).revisions
          assert.deepEqual(revision?.filter.where, atLeast(10 * newest + winner).where)
        }
      }
      await other.close()
    })

    test("a running consumer changes over, without a record in between, and stops while the filter is disabled", async () => {
      const topic = await rig.topic()
      const group = topic.consumerGroup("change")
      await group.filter().configure({ where: { path: "n", op: "lt", value: 100 } })
      await put(topic, 0, 10)
      const consumer = await group.consumer({ commitPolicy: { kind: "each" } })
      assert.deepEqual(numbers(await take(consumer, 2)), [0, 1])
      const draft = await group.filter().revise(1, { where: { path: "n", op: "in", value: [5, 8, 11] } })
      await group.filter().setRevisionEnabled(draft.revision, true)
      assert.deepEqual(numbers(await take(consumer, 2)), [5, 8])
      await group.filter().setRevisionEnabled(draft.revision, false)
      await put(topic, 10, 13)
      const stopped = await refused(() => consumer.nextWithin(patienceMs), {
        kind: "invalid",
        says: ["disabled", group.name],
      })
      assert.equal(stopped.context.reason, "revision_disabled")
      await group.filter().setRevisionEnabled(draft.revision, true)
      assert.deepEqual(numbers([await consumer.nextWithin(patienceMs)]), [11])
      await consumer.shutdown()
    })

    test("another client's consumer follows within the refresh, and what it has in hand still commits", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      await topic.consumerGroup("far").filter().configure(atLeast(0))
      const other = await rig.connect()
      const group = rig.through(other, topic).consumerGroup("far")
      const consumer = await group.consumer({ commitPolicy: { kind: "disabled" } })
      await put(topic, 0, 4)
      const [first] = await take(consumer, 1)
      assert.ok(first !== undefined)
      const filter = topic.consumerGroup("far").filter()
      await filter.setRevisionEnabled((await filter.revise(1, atLeast(50))).revision, true)
      await until("the consumer to have changed over", async () => {
        await put(topic, 40, 41)
        await put(topic, 60, 61)
        const [message] = await take(consumer, 1)
        return message !== undefined && numbers([message])[0] === 60 ? true : undefined
      })
      await consumer.commit(first)
      assert.equal((await consumer.storedOffset(0))?.stored, first.position.offset)
      await other.close()
    })

    test("each topic of a member has the filter of the group on that topic", async () => {
      const [filtered, whole] = [await rig.topic(), await rig.topic()]
      const group = filtered.consumerGroup(rig.name("both"))
      await group.filter().configure(atLeast(2))
      await put(filtered, 0, 4)
      await put(whole, 0, 4)
      const consumer = await group.consumer({ topics: [whole] })
      const messages = await take(consumer, 6)
      const of = (topic: Topic): number[] => numbers(messages.filter((message) => message.topic === topic.name))
      assert.deepEqual(
        [of(filtered), of(whole)],
        [
          [2, 3],
          [0, 1, 2, 3],
        ],
      )
      await consumer.shutdown()
    })

    test("the filter stays with the names when the topic is made again", async () => {
      const topic = await rig.topic()
      const group = topic.consumerGroup("again")
      const binding = await group.filter().configure(atLeast(2))
      await topic.delete()
      await topic.ensure(1)
      await put(topic, 0, 4)
      assert.deepEqual(await group.filter().get(), binding)
      const consumer = await group.consumer()
      assert.deepEqual(numbers(await take(consumer, 2)), [2, 3])
      await consumer.shutdown()
    })

    test("a preview tells what would be selected, and why; nothing is joined or stored", async () => {
      const topic = await rig.topic()
      await put(topic, 0, 10)
      const filter = topic.consumerGroup("preview").filter()
      await refused(() => filter.preview(0), { kind: "not-found", says: ["no filter in force"] })
      const drafted = await filter.preview(0, { filter: atLeast(7) })
      assert.deepEqual(
        { examined: drafted.examined, selected: drafted.selected, stopped: drafted.stopped, next: drafted.nextOffset },
        { examined: 10, selected: 3, stopped: 0, next: drafted.end },
      )
      assert.deepEqual(numbers(drafted.records.map(({ message }) => message)), [7, 8, 9])
      const { digest } = await filter.configure(atLeast(7))
      assert.equal(drafted.digest, digest)
      const explained = await filter.preview(0, {
        fromOffset: drafted.records[0]?.message.position.offset as bigint,
        explain: true,
        maxRecords: 2,
      })
      assert.equal(explained.examined, 2)
      assert.deepEqual(explained.records[0]?.explanation, { node: "filter.where", truth: true })
      const bounded = await filter.preview(0, { maxExamined: 4 })
      assert.deepEqual([bounded.examined, bounded.selected], [4, 0])
      const rest = await filter.preview(0, { fromOffset: bounded.nextOffset })
      assert.deepEqual([rest.examined, rest.selected], [6, 3])
      await refused(() => filter.preview(0, { fromOffset: 1000n }), { kind: "offset-out-of-range", says: ["1000"] })
      await refused(() => filter.preview(5), "not-found")
      await refused(() => filter.preview(0, { maxRecords: 101 }), { kind: "invalid", says: ["maxRecords", "101"] })
      await refused(() => filter.preview(0, { filter: atLeast(1), revision: 1 }), {
        kind: "invalid",
        says: ["revision"],
      })
    })

    test("a record that somebody makes up is tested, and the answer says why", async () => {
      const filter = (await rig.topic()).consumerGroup("test").filter()
      await filter.configure({
        where: {
          all: [
            { path: "n", op: "gte", value: 5 },
            { header: "kind", op: "eq", value: "a" },
          ],
        },
      })
      const selected = await filter.test(encode('{"n":5}'), { kind: "a" })
      assert.equal(selected.selected, true)
      const left = await filter.test(encode('{"n":4}'), { kind: "a" })
      assert.equal(left.selected, false)
      assert.deepEqual(
        left.explanation.children?.map(({ node, truth }) => ({ node, truth })),
        [
          { node: "filter.where.all[0]", truth: false },
          { node: "filter.where.all[1]", truth: true },
        ],
      )
      const broken = await filter.test(encode("{"), { kind: "a" })
      assert.deepEqual([broken.selected, broken.judgement, broken.reason], [false, "stopped", "malformed"])
      assert.equal(
        (await filter.test(encode("1"), {}, { filter: { where: { not: { path: "n", op: "present" } } } })).selected,
        true,
      )
    })

    test("what it cannot decode stops a consumer in place; skip goes on behind it", async () => {
      const topic = await rig.topic()
      const group = topic.consumerGroup("stop")
      await group.filter().configure(atLeast(0))
      await put(topic, 0, 2)
      await topic.producer().send(encode("no JSON"), { partition: 0 })
      await put(topic, 2, 4)
      const consumer = await group.consumer()
      assert.deepEqual(numbers(await take(consumer, 2)), [0, 1])
      const error = await refused(() => consumer.nextWithin(patienceMs), { kind: "decode", says: ["filter"] })
      assert.equal(error.context.fault, "malformed")
      await consumer.seek(0, "skip")
      assert.deepEqual(numbers(await take(consumer, 2)), [2, 3])
      await consumer.shutdown()
    })
  })

  describe("the reader of a group", () => {
    test("reads what the filter selects in pages, and stores what is acknowledged in any order", async () => {
      const topic = await rig.topic()
      await put(topic, 0, 20)
      const group = topic.consumerGroup("pages")
      await group.filter().configure(atLeast(10))
      const reader = await group.reader({ count: 4 })
      const pages: MatchedPage[] = []
      while (pages.flatMap(({ messages }) => messages).length < 10) pages.push(await page(reader))
      assert.ok(pages.every(({ messages }) => messages.length >= 1 && messages.length <= 4))
      assert.deepEqual(
        pages.flatMap(({ messages }) => numbers(messages)),
        [10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
      )
      const [first, ...rest] = pages as [MatchedPage, ...MatchedPage[]]
      for (const one of rest.slice(0, -1).toReversed()) await reader.ackPage(one)
      const [before] = await reader.lag()
      const [lowest] = first.messages
      assert.ok(lowest !== undefined)
      assert.ok(before?.storedOffset === undefined || before.storedOffset < lowest.position.offset)
      await reader.ack(lowest)
      await reader.ackThrough(first.messages.at(-1) as Message)
      assert.equal(reader.unacked, 1)
      await reader.shutdown()
      const again = await group.reader()
      const left = numbers((rest.at(-1) as MatchedPage).messages)
      assert.equal(numbers((await page(again)).messages)[0], left[0], "what was not acknowledged comes again")
      await again.shutdown()
    })

    test("what its filter leaves out is stored though nothing is acknowledged", async () => {
      const topic = await rig.topic()
      const group = topic.consumerGroup("scanned")
      await group.filter().configure(atLeast(1000))
      await using reader = await group.reader()
      await put(topic, 0, 10)
      await until("progress to reach the end", async () => {
        assert.equal(await reader.poll(), undefined)
        const [lag] = await reader.lag()
        return lag?.lag === 0n ? true : undefined
      })
    })

    test("unacknowledged pages are bounded, and acknowledging one makes room", async () => {
      const topic = await rig.topic()
      await put(topic, 0, 6)
      const reader = await topic.consumerGroup("bounded").reader({ count: 1, unackedPages: 2 })
      const one = await page(reader)
      await page(reader)
      await refused(() => reader.next(), { kind: "buffer-full", says: ["unackedPages", "2"] })
      await reader.ackPage(one)
      assert.deepEqual(numbers((await page(reader)).messages), [2])
      await reader.shutdown()
      await refused(() => reader.ackPage(one), "closed")
    })

    test("members share the partitions; what moves is acknowledged by its new owner only", async () => {
      const topic = await rig.topic(2)
      await put(topic, 0, 5, 0)
      await put(topic, 0, 5, 1)
      const group = topic.consumerGroup("shared")
      const reader = await group.reader({ count: 2, revokeTimeoutMs: 200 })
      // A partition has three of them: there are some of either.
      const pages = [await page(reader), await page(reader), await page(reader), await page(reader)]
      const other = await group.reader({ count: 2 })
      const moved = await until("a partition to have moved", async () => {
        const { members } = await group.describe()
        const all = members.map(({ partitions }) => partitions.length)
        return all.length === 2 && all.every((count) => count === 1) ? true : undefined
      })
      assert.equal(moved, true)
      const outcomes = await Promise.allSettled(pages.map((one) => reader.ackPage(one)))
      const refusals = outcomes.filter(({ status }) => status === "rejected")
      assert.ok(
        refusals.length > 0 && refusals.length < pages.length,
        `${refusals.length} of ${pages.length} were refused`,
      )
      const taken = await page(other)
      assert.deepEqual(numbers(taken.messages), [0, 1], "nothing of it was stored")
      await Promise.all([reader.shutdown(), other.shutdown()])
    })
  })
}
