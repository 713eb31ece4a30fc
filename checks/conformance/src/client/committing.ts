/** Chapter: what is stored under each policy when a consumer stops here or there, and progress that is moved by hand. The rules are those of docs/commit-policies.md. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { CommitPolicy, ConsumerOptions, Message } from "millrace"
import { type ClientRig, fill, nothingComes, oddNames, take, takeTexts } from "../rig/client-rig.ts"
import { until } from "../rig/deadline.ts"
import { storedBecomes, storedBy } from "../rig/progress.ts"
import { numbered } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

/** Longer than any test: of two moments the other one comes first. */
const never = 60_000
const soon = 20

/**
 * What is stored once `taken` of ten messages are handed out in pages of four, the last of them still in hand; and what is not stored yet one
 * message earlier, where the moment is not the clock's.
 */
const moments: readonly {
  readonly policy: CommitPolicy
  readonly taken: number
  readonly stored: bigint
  readonly earlier?: bigint | "nothing"
}[] = [
  { policy: { kind: "every", count: 3 }, taken: 4, stored: 2n, earlier: "nothing" },
  { policy: { kind: "interval", intervalMs: soon }, taken: 3, stored: 1n },
  { policy: { kind: "interval", intervalMs: soon }, taken: 6, stored: 4n },
  { policy: { kind: "intervalOrPolling", intervalMs: never }, taken: 5, stored: 3n, earlier: "nothing" },
  { policy: { kind: "intervalOrPolling", intervalMs: soon }, taken: 2, stored: 0n },
  { policy: { kind: "intervalOrAll", intervalMs: never }, taken: 5, stored: 3n, earlier: "nothing" },
  { policy: { kind: "intervalOrAll", intervalMs: soon }, taken: 2, stored: 0n },
  { policy: { kind: "intervalOrEach", intervalMs: never }, taken: 3, stored: 1n, earlier: 0n },
  { policy: { kind: "intervalOrEvery", intervalMs: never, count: 2 }, taken: 3, stored: 1n, earlier: "nothing" },
  { policy: { kind: "intervalOrEvery", intervalMs: soon, count: 100 }, taken: 3, stored: 1n },
  { policy: { kind: "auto", every: 3, intervalMs: false }, taken: 4, stored: 2n, earlier: "nothing" },
  { policy: { kind: "auto", every: "message", intervalMs: false }, taken: 3, stored: 1n },
  { policy: { kind: "auto", every: "batch", intervalMs: false }, taken: 5, stored: 3n, earlier: "nothing" },
  { policy: { kind: "auto", every: false, intervalMs: soon }, taken: 3, stored: 1n },
  { policy: { kind: "auto", after: "delivery", every: "message", intervalMs: false }, taken: 3, stored: 2n },
  {
    policy: { kind: "auto", after: "delivery", every: 2, intervalMs: never },
    taken: 2,
    stored: 1n,
    earlier: "nothing",
  },
]

export function committingChapter(rig: ClientRig): void {
  describe("what each policy stores", () => {
    for (const { policy, taken, stored, earlier } of moments) {
      test(`${JSON.stringify(policy)} with ${taken} taken: whoever comes after a crash goes on behind ${stored}`, async () => {
        const topic = await rig.filled(10)
        // The watchdog looks at what is in hand: without it, only the policy's own moments make it store.
        const options = { commitPolicy: policy, batchLength: 4, stalledAfterMs: 10 * never }
        const consumer = topic.consumer("reader", 0, options)
        await take(consumer, taken - 1)
        if (earlier !== undefined) {
          assert.equal(
            await storedBy(topic, "reader"),
            earlier === "nothing" ? undefined : earlier,
            "one message earlier",
          )
        }
        await take(consumer, 1)
        await storedBecomes(topic, "reader", stored)
        const after = topic.consumer("reader", 0, disabled)
        assert.deepEqual(await takeTexts(after, 1), [`r${stored + 1n}`])
        await after.shutdown()
        assert.equal(
          await storedBy(topic, "reader"),
          stored,
          "the message in hand counts only once the next one is asked for",
        )
        await consumer.shutdown()
        assert.equal(await storedBy(topic, "reader"), BigInt(taken - 1), "a shutdown stores the rest")
      })
    }

    test("auto after marked: what is marked without a gap, and nothing because it was handed out or asked past", async () => {
      const topic = await rig.filled(6)
      const consumer = topic.consumer("reader", 0, {
        commitPolicy: { kind: "auto", after: "marked", every: "message" },
      })
      const messages = await take(consumer, 5)
      consumer.mark(at(messages, 1))
      consumer.mark(at(messages, 3))
      assert.equal(await storedBy(topic, "reader"), undefined, "0 is not marked")
      consumer.mark(at(messages, 0).checkpoint())
      await storedBecomes(topic, "reader", 1n)
      consumer.mark(at(messages, 2))
      await storedBecomes(topic, "reader", 3n)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 3n)
    })

    test("disabled: marks are stored in the background, as far as there is no gap", async () => {
      const topic = await rig.filled(6)
      const consumer = topic.consumer("reader", 0, disabled)
      const messages = await take(consumer, 5)
      for (const index of [4, 2, 1]) consumer.mark(at(messages, index))
      assert.equal(await storedBy(topic, "reader"), undefined)
      consumer.mark(at(messages, 0))
      await storedBecomes(topic, "reader", 2n)
      await consumer.commit(at(messages, 3))
      assert.equal(await storedBy(topic, "reader"), 4n, "a commit takes what is marked behind it along")
      await consumer.shutdown()
    })

    test("onRead: what is handed out is stored already, so that a crash repeats nothing; it may lose what was read", async () => {
      const topic = await rig.filled(10)
      const consumer = topic.consumer("reader", 0, {
        commitPolicy: { kind: "onRead" },
        prefetchRecords: 4,
        batchLength: 2,
      })
      for (let index = 0; index < 3; index++) {
        const [message] = await take(consumer, 1)
        const stored = await storedBy(topic, "reader")
        assert.ok(stored !== undefined && stored >= at([message], 0).position.offset, `${stored} is stored`)
      }
      const stored = (await storedBy(topic, "reader")) as bigint
      const after = topic.consumer("reader", 0, { commitPolicy: { kind: "onRead" } })
      if (stored < 9n) assert.deepEqual(await takeTexts(after, 1), [`r${stored + 1n}`])
      else await nothingComes(after)
      await after.shutdown()
      await consumer.shutdown()
    })

    test("onRead: commit and mark are refused", async () => {
      const topic = await rig.filled(2)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "onRead" } })
      const [message] = await take(consumer, 1)
      await refused(() => consumer.commit(message), { kind: "invalid", says: ["onRead"] })
      await refused(() => consumer.mark(at([message], 0)), { kind: "invalid", says: ["onRead"] })
      await consumer.shutdown()
    })

    test("a group stores for each of its partitions, whatever the policy counts over them", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const topic = await rig.topic(2)
      await fill(topic, numbered("a", 0, 5), 0)
      await fill(topic, numbered("b", 0, 5), 1)
      const group = topic.consumerGroup("counting")
      const consumer = await group.consumer({ commitPolicy: { kind: "every", count: 4 } })
      await take(consumer, 9)
      await until("eight to be stored", async () => {
        const { lag } = await group.describe()
        return lag.reduce((sum, one) => sum + one.lag, 0n) === 2n ? true : undefined
      })
      await consumer.shutdown()
      const { lag } = await group.describe()
      assert.equal(
        lag.reduce((sum, one) => sum + one.lag, 0n),
        1n,
      )
    })

    for (const kind of ["every", "interval", "auto"] as const) {
      test(`policy ${kind}: a loop whose handler throws leaves its message unhandled, the scope's end stores the rest`, async () => {
        const topic = await rig.filled(6)
        await assert.rejects(async () => {
          await using consumer = topic.consumer("reader", 0, { commitPolicy: longPolicy(kind) })
          for await (const message of consumer)
            if (message.position.offset === 3n) throw new Error("the handler failed")
        }, /the handler failed/)
        assert.equal(await storedBy(topic, "reader"), 2n)
        const again = topic.consumer("reader", 0)
        assert.deepEqual(await takeTexts(again, 1), ["r3"])
        await again.shutdown()
      })
    }
  })

  describe("progress moved by hand", () => {
    test("storeOffset moves what is stored, forward and back; reading goes on where it stands", async () => {
      const topic = await rig.filled(10)
      const consumer = topic.consumer("reader", 0, disabled)
      await take(consumer, 5)
      await consumer.storeOffset(7n)
      assert.deepEqual(await takeTexts(consumer, 1), ["r5"])
      await consumer.storeOffset(1n)
      assert.equal(await storedBy(topic, "reader"), 1n)
      assert.equal(consumer.lastStoredOffset(), 1n)
      assert.deepEqual(await takeTexts(consumer, 1), ["r6"])
      await consumer.shutdown()
    })

    test("storeOffset back stands until more is handled, also at a shutdown", async () => {
      const topic = await rig.filled(6)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "every", count: 100 } })
      await take(consumer, 5)
      await consumer.commit()
      await consumer.storeOffset(1n)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 1n)
    })

    for (const [where, offset] of [
      ["forward", 7n],
      ["back", 0n],
    ] as const) {
      test(`storeOffset with resetPosition ${where}: the next message is the one behind it, whatever was read ahead`, async () => {
        const topic = await rig.filled(10)
        const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
        await take(consumer, 4)
        await consumer.storeOffset(offset, 0, { resetPosition: true })
        assert.equal(await storedBy(topic, "reader"), offset)
        assert.deepEqual(await takeTexts(consumer, 2), [`r${offset + 1n}`, `r${offset + 2n}`])
        await consumer.shutdown()
        assert.equal(await storedBy(topic, "reader"), offset + 2n)
      })
    }

    test("storeOffset of another partition, or of what is no offset, is refused", async () => {
      const topic = await rig.filled(1)
      const consumer = topic.consumer("reader", 0, disabled)
      await refused(() => consumer.storeOffset(0n, 3), { kind: "invalid", says: ["3"] })
      await refused(() => consumer.storeOffset(-1n), { kind: "invalid", says: ["-1"] })
      await refused(() => consumer.storeOffset(1 as never), { kind: "invalid", says: ["1"] })
      await consumer.shutdown()
    })

    test("deleteOffset forgets: this consumer reads on and stores again, one that comes before that begins anew", async () => {
      const topic = await rig.filled(6)
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      await take(consumer, 3)
      await consumer.deleteOffset()
      assert.equal(await storedBy(topic, "reader"), undefined)
      const anew = topic.consumer("reader", 0, disabled)
      assert.deepEqual(await takeTexts(anew, 1), ["r0"])
      await anew.shutdown()
      assert.deepEqual(await takeTexts(consumer, 2), ["r3", "r4"])
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "reader"), 4n)
    })

    test("a commit of an older message does not take progress back", async () => {
      const topic = await rig.filled(6)
      const consumer = topic.consumer("reader", 0, disabled)
      const messages = await take(consumer, 6)
      await consumer.commit(messages[4])
      await consumer.commit(messages[1])
      assert.equal(await storedBy(topic, "reader"), 4n)
      await consumer.shutdown()
    })

    test("a checkpoint of a topic that was made again is refused, and nothing is stored", async () => {
      const topic = await rig.filled(3)
      const consumer = topic.consumer("reader", 0, { ...disabled, onMissing: "wait", pollingRetryIntervalMs: 50 })
      const [message] = await take(consumer, 3)
      const checkpoint = at([message], 0).checkpoint()
      await topic.delete()
      await topic.ensure(1)
      await fill(topic, ["new0", "new1"])
      const error = await refused(() => consumer.commit(checkpoint), "history-changed")
      assert.equal(error.context.partition, 0)
      assert.equal(await storedBy(topic, "reader"), undefined)
      assert.deepEqual(await takeTexts(consumer, 2), ["new0", "new1"])
      await refused(() => consumer.commit(checkpoint), "history-changed")
      await consumer.shutdown()
    })

    test("a checkpoint of a partition that was another member's meanwhile is refused, though it has come back", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const topic = await rig.topic(2)
      for (const partition of [0, 1]) await fill(topic, numbered("r", 0, 3), partition)
      const group = topic.consumerGroup("fenced")
      const first = await group.consumer(disabled)
      const checkpoints = (await take(first, 6)).map((message) => message.checkpoint())
      const moved = new Set<number>()
      const back: number[] = []
      first.on({
        revoked(places) {
          for (const { partition } of places) moved.add(partition)
        },
        assigned(places) {
          for (const { partition } of places) if (moved.has(partition)) back.push(partition)
        },
      })
      const second = await group.consumer(disabled)
      await until("a partition to move", () => (moved.size > 0 ? true : undefined))
      await until("the second to hold it", async () =>
        (await group.describe()).members.every(({ partitions }) => partitions.length === 1) ? true : undefined,
      )
      await second.shutdown()
      await until("it to come back", () => (back.length > 0 ? true : undefined))
      for (const checkpoint of checkpoints) {
        if (moved.has(checkpoint.partition)) await refused(() => first.commit(checkpoint), "not-assigned")
        else await first.commit(checkpoint)
      }
      const { lag } = await group.describe()
      for (const { partition, storedOffset } of lag) assert.equal(storedOffset, moved.has(partition) ? undefined : 2n)
      await first.shutdown()
    })

    test("names with odd characters keep their own progress", async () => {
      const topic = await rig.filled(oddNames.length + 1)
      for (const [index, name] of oddNames.entries()) {
        const consumer = topic.consumer(name, 0, disabled)
        await consumer.storeOffset(BigInt(index))
        await consumer.shutdown()
      }
      for (const [index, name] of oddNames.entries()) {
        const consumer = topic.consumer(name, 0, disabled)
        assert.deepEqual(await takeTexts(consumer, 1), [`r${index + 1}`], name)
        await consumer.shutdown()
      }
    })
  })
}

const disabled: ConsumerOptions = { commitPolicy: { kind: "disabled" } }

function longPolicy(kind: "every" | "interval" | "auto"): CommitPolicy {
  if (kind === "every") return { kind, count: 1000 }
  return kind === "interval" ? { kind, intervalMs: never } : { kind }
}

function at(messages: readonly (Message | undefined)[], index: number): Message {
  const message = messages[index]
  if (message === undefined) throw new Error(`there is no message ${index}`)
  return message
}
