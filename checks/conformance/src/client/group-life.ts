/** Chapter: the life of a group's members: names, several topics, hand-overs, overdue handlers, topics that change, progress moved from outside. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Consumer, GroupConsumerOptions, Message } from "millrace"
import { type ClientRig, fill, nothingComes, oddNames, take, takeTexts } from "../rig/client-rig.ts"
import { until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function groupLifeChapter(rig: ClientRig): void {
  describe("members of groups", () => {
    test("whatever a group is called, it is a group of its own", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, oddNames.length + 1))
      for (const [index, name] of oddNames.entries()) {
        const consumer = await topic.consumerGroup(name).consumer({ commitPolicy: { kind: "disabled" } })
        const messages = await take(consumer, index + 1)
        await consumer.commit(messages.at(-1))
        await consumer.shutdown()
      }
      for (const [index, name] of oddNames.entries()) {
        const consumer = await topic.consumerGroup(name).consumer()
        assert.deepEqual(await takeTexts(consumer, 1), [`r${index + 1}`], name)
        await consumer.shutdown()
      }
    })

    test("a member reads several topics, and each keeps its own progress", async () => {
      const [one, other] = [await rig.topic(2), await rig.topic(1)]
      await fill(one, numbered("a", 0, 3), 0)
      await fill(one, numbered("b", 0, 3), 1)
      await fill(other, numbered("c", 0, 3), 0)
      const options: GroupConsumerOptions = { topics: [other], commitPolicy: { kind: "each" } }
      const first = await one.consumerGroup("both").consumer(options)
      const texts = await takeTexts(first, 9)
      assert.deepEqual(texts.toSorted(), ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"])
      await first.shutdown()
      await fill(other, ["c3"], 0)
      const second = await one.consumerGroup("both").consumer(options)
      assert.deepEqual(await takeTexts(second, 1), ["c3"])
      await second.shutdown()
    })

    test("a member that comes back under its name takes its place, and the older one ends", async (t) => {
      const { staticMembers } = rig.client.manifest
      if (!staticMembers.supported) return t.skip(staticMembers.reason)
      const topic = await rig.topic(2)
      await fill(topic, numbered("a", 0, 4), 0)
      await fill(topic, numbered("b", 0, 4), 1)
      const group = topic.consumerGroup("named")
      const options: GroupConsumerOptions = { memberId: "m1", commitPolicy: { kind: "disabled" } }
      const older = await group.consumer(options)
      const [message] = await take(older, 1)
      const later = await group.consumer(options)
      await until("the older one to be ended", async () => {
        try {
          await older.nextWithin(10)
        } catch (error) {
          if ((error as { kind?: unknown }).kind === "fenced") return true
          if ((error as { kind?: unknown }).kind !== "timeout") throw error
        }
        return undefined
      })
      await refused(() => older.commit(message), "not-assigned")
      assert.equal((await takeTexts(later, 8)).length, 8)
      const { members } = await group.describe()
      assert.deepEqual(
        members.map(({ memberId }) => memberId),
        ["m1"],
      )
      await Promise.all([older.shutdown(), later.shutdown()])
    })

    test("two consumers of one name and partition are no group: each reads everything", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 3))
      const consumers = [topic.consumer("same", 0), topic.consumer("same", 0)]
      for (const consumer of consumers) assert.deepEqual(await takeTexts(consumer, 3), ["r0", "r1", "r2"])
      await Promise.all(consumers.map((consumer) => consumer.shutdown()))
    })

    test("consumers without a name share nothing, store nothing, and say so", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 3))
      const consumers = [topic.consumer(undefined, 0), topic.consumer(undefined, 0)]
      for (const consumer of consumers) assert.deepEqual(await takeTexts(consumer, 3), ["r0", "r1", "r2"])
      const [one] = consumers as [Consumer, Consumer]
      await refused(() => one.storedOffset(), { kind: "invalid", says: ["storedOffset", "name"] })
      await refused(() => one.commit(), { kind: "invalid", says: ["name"] })
      await Promise.all(consumers.map((consumer) => consumer.shutdown()))
      const again = topic.consumer(undefined, 0)
      assert.deepEqual(await takeTexts(again, 1), ["r0"])
      await again.shutdown()
    })

    test("partitions that are added reach the members", async (t) => {
      const { addPartitions } = rig.client.manifest.catalog
      if (!addPartitions.supported) return t.skip(addPartitions.reason)
      const topic = await rig.topic(1)
      const consumer = await topic.consumerGroup("grows").consumer()
      await fill(topic, ["a"], 0)
      assert.deepEqual(await takeTexts(consumer, 1), ["a"])
      await topic.addPartitions(2)
      await fill(topic, ["b"], 1)
      await fill(topic, ["c"], 2)
      const texts = await Promise.all([nextWithin(consumer, 30_000), nextWithin(consumer, 30_000)])
      assert.deepEqual(texts.toSorted(), ["b", "c"], "nothing of a new partition is left out")
      await consumer.shutdown()
    })

    test("a topic that is made again is read again, with onMissing wait", async () => {
      const topic = await rig.topic(2)
      const consumer = await topic
        .consumerGroup("patient")
        .consumer({ onMissing: "wait", pollingRetryIntervalMs: 100, commitPolicy: { kind: "each" } })
      await fill(topic, ["old"], 0)
      assert.deepEqual(await takeTexts(consumer, 1), ["old"])
      await topic.delete()
      await topic.ensure(2)
      await fill(topic, ["new0"], 0)
      await fill(topic, ["new1"], 1)
      const texts = [await nextWithin(consumer, 30_000), await nextWithin(consumer, 30_000)]
      assert.deepEqual(texts.toSorted(), ["new0", "new1"])
      await consumer.shutdown()
    })
  })

  describe("handing over", () => {
    test("A-07: after the revocation nothing of the partition is handed out, and a late commit changes nothing", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic(2)
      for (const partition of [0, 1]) await fill(topic, numbered(`${partition}:`, 0, 100), partition)
      const group = topic.consumerGroup("halfway")
      const first = await group.consumer({ commitPolicy: { kind: "disabled" } })
      const messages = await take(first, 101) // of either partition at least one
      const handled = new Map<number, Message>()
      for (const message of messages.slice(0, 60)) handled.set(message.position.partition, message)
      for (const message of handled.values()) await first.commit(message)
      const revoked: number[] = []
      first.on({ revoked: (places) => revoked.push(...places.map(({ partition }) => partition)) })
      const second = await group.consumer({ commitPolicy: { kind: "disabled" } })
      const moved = await until("a partition to move", () => revoked[0], 20_000)
      const late = messages.findLast(({ position }) => position.partition === moved) as Message
      await refused(() => first.commit(late), { kind: "not-assigned", says: [String(moved)] })
      const [next] = await take(second, 1)
      assert.equal(next?.position.partition, moved)
      assert.equal(next?.position.offset, (handled.get(moved)?.position.offset ?? -1n) + 1n)
      const kept = await take(first, 200 - messages.length - (100 - messages.filter(of(moved)).length))
      assert.ok(!kept.some(of(moved)))
      await nothingComes(first)
      await Promise.all([first.shutdown(), second.shutdown()])
    })

    test("listeners of revoking are awaited, and what they commit counts", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic(2)
      for (const partition of [0, 1]) await fill(topic, numbered(`${partition}:`, 0, 20), partition)
      const group = topic.consumerGroup("flushing")
      const first = await group.consumer({ commitPolicy: { kind: "disabled" } })
      const messages = await take(first, 40)
      const told: string[] = []
      first.on({
        async revoking({ partitions: [place] }) {
          told.push("revoking")
          await first.commit(messages.findLast(of(place?.partition ?? -1)))
          told.push("flushed")
        },
        revoked: () => void told.push("revoked"),
      })
      const second = await group.consumer()
      await until("the hand-over", () => (told.includes("revoked") ? true : undefined), 20_000)
      assert.deepEqual(told, ["revoking", "flushed", "revoked"])
      await nothingComes(second)
      await Promise.all([first.shutdown(), second.shutdown()])
    })

    test("handlers of run finish what they have begun, and it does not come twice", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic(2)
      for (const partition of [0, 1]) await fill(topic, numbered(`${partition}:`, 0, 30), partition)
      const group = topic.consumerGroup("running")
      const times = new Map<string, number>()
      const handler = async (message: Message): Promise<void> => {
        await new Promise((resolve) => setTimeout(resolve, 15))
        const name = text(message.payload)
        times.set(name, (times.get(name) ?? 0) + 1)
      }
      const first = await group.consumer({ commitPolicy: { kind: "each" } })
      const running = first.run(handler, { concurrency: 4, order: "none" })
      await until("some to be handled", () => (times.size > 4 ? true : undefined))
      const second = await group.consumer({ commitPolicy: { kind: "each" } })
      const other = second.run(handler, { concurrency: 4, order: "none" })
      await until("all to be handled", () => (times.size === 60 ? true : undefined), 30_000)
      await Promise.all([first.shutdown(), second.shutdown(), running, other])
      assert.deepEqual(
        [...times].filter(([, count]) => count > 1),
        [],
      )
    })
  })

  describe("a handler that is overdue", () => {
    test("A-27: costs its member the partitions, its commit is refused, and its caller may come back", async () => {
      const topic = await rig.topic(1)
      await fill(topic, numbered("r", 0, 5))
      const group = topic.consumerGroup("overdue")
      const slow = await group.consumer({ handlerTimeoutMs: 300, commitPolicy: { kind: "disabled" } })
      const told: string[] = []
      slow.on({ handlerTimeout: () => void told.push("handlerTimeout"), revoked: () => void told.push("revoked") })
      const [, message] = await take(slow, 2)
      await until("the member to go", () => (told.length === 2 ? true : undefined))
      assert.deepEqual(told, ["handlerTimeout", "revoked"])
      await refused(() => slow.commit(message), "not-assigned")
      const quick = await group.consumer({ commitPolicy: { kind: "each" } })
      assert.deepEqual(await takeTexts(quick, 3), ["r0", "r1", "r2"])
      await quick.shutdown()
      assert.deepEqual([await nextWithin(slow, 30_000)], ["r3"])
      await slow.shutdown()
    })
  })

  describe("a handler of run that never settles", () => {
    test("A-27: cannot hold its partitions", async () => {
      const topic = await rig.topic(1)
      await fill(topic, numbered("r", 0, 3))
      const group = topic.consumerGroup("stuck")
      const stuck = await group.consumer({ handlerTimeoutMs: 300, commitPolicy: { kind: "each" } })
      const overdue: (bigint | undefined)[] = []
      stuck.on({ handlerTimeout: ({ offset }) => void overdue.push(offset) })
      const aborted = Promise.withResolvers<void>()
      const running = stuck.run((message, { signal }) => {
        if (message.position.offset === 0n) return undefined
        signal.addEventListener("abort", () => aborted.resolve())
        return new Promise(() => {})
      })
      const ended = running.catch(() => {})
      await until("the handler to be overdue", () => (overdue.length > 0 ? true : undefined))
      assert.deepEqual(overdue, [1n])
      await aborted.promise
      const quick = await group.consumer({ commitPolicy: { kind: "each" } })
      assert.deepEqual(await takeTexts(quick, 2), ["r1", "r2"])
      await quick.shutdown()
      await refused(() => stuck.shutdown({ timeoutMs: 100 }), "timeout")
      await ended
    })
  })

  describe("a group's progress", () => {
    test("is told for each partition, with its members", async () => {
      const topic = await rig.topic(2)
      await fill(topic, numbered("a", 0, 7), 0)
      await fill(topic, numbered("b", 0, 3), 1)
      const group = topic.consumerGroup("described")
      const consumer = await group.consumer({ commitPolicy: { kind: "disabled" } })
      const messages = await take(consumer, 10)
      await consumer.commit(messages.filter(of(0))[4])
      const { lag, members } = await group.describe()
      assert.equal(members.length, 1)
      assert.deepEqual(
        lag.map(({ partition, storedOffset, end, lag: behind }) => ({ partition, storedOffset, end, behind })),
        [
          { partition: 0, storedOffset: 4n, end: 7n, behind: 2n },
          { partition: 1, storedOffset: undefined, end: 3n, behind: 3n },
        ],
      )
      await consumer.shutdown()
    })

    test("is reset while nobody reads, to every kind of place", async () => {
      const topic = await rig.topic(2)
      await fill(topic, numbered("a", 0, 6), 0)
      await fill(topic, numbered("b", 0, 2), 1)
      const group = topic.consumerGroup("reset")
      const consumer = await group.consumer({ commitPolicy: { kind: "each" } })
      await take(consumer, 8)
      await refused(() => group.resetOffsets({ kind: "first" }), { kind: "invalid", says: ["member", "first"] })
      await consumer.shutdown()
      await refused(() => group.resetOffsets({ kind: "next" }), { kind: "invalid", says: ["next"] })
      await refused(() => group.resetOffsets({ kind: "earliest" } as never), "invalid")
      const begins = async (expected: readonly string[]): Promise<void> => {
        const reader = await group.consumer({ commitPolicy: { kind: "disabled" } })
        assert.deepEqual((await takeTexts(reader, expected.length)).toSorted(), expected)
        await nothingComes(reader)
        await reader.shutdown()
      }
      await group.resetOffsets({ kind: "offset", value: 4n })
      await begins(["a4", "a5"])
      await group.resetOffsets({ kind: "first" })
      await begins(["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"])
      await group.resetOffsets({ kind: "last" })
      await begins(["a5", "b1"])
      await group.resetOffsets({ kind: "timestampMicros", value: BigInt(Date.now() + 3_600_000) * 1000n })
      await begins([])
    })
  })

  describe("signs of life", () => {
    test("an event loop that stands still is told with the measured delay", async () => {
      const topic = await rig.topic()
      await fill(topic, ["r0"])
      const consumer = topic.consumer("blocked", 0)
      const delays: number[] = []
      consumer.on({ loopBlocked: ({ delayMs }) => void delays.push(delayMs) })
      await takeTexts(consumer, 1)
      const until1500 = performance.now() + 1_500
      while (performance.now() < until1500);
      await until("the delay to be told", () => (delays.length > 0 ? true : undefined))
      assert.ok((delays[0] ?? 0) >= 1_000, `${delays[0]} ms`)
      await consumer.shutdown()
    })
  })
}

const of =
  (partition: number) =>
  (message: Message): boolean =>
    message.position.partition === partition

async function nextWithin(consumer: Consumer, ms: number): Promise<string> {
  return text((await consumer.nextWithin(ms)).payload)
}
