/** Chapter: codecs that misbehave while a real consumer reads: they throw whatever there is, take their time, answer later, or call back in. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type Codec, type LoopBlock, type Topic, TypedDecodeError, type TypedTopic } from "millrace"
import { type ClientRig, encode } from "../rig/client-rig.ts"
import { patienceMs, settlesWithin, until } from "../rig/deadline.ts"
import { storedBy } from "../rig/progress.ts"
import { text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

/** What a decode can do in place of answering. */
const misdeeds: Readonly<Record<string, () => unknown>> = {
  "throws an error": () => {
    throw new RangeError("no")
  },
  "throws nothing": () => {
    throw undefined
  },
  "throws what throws when it is looked at": () => {
    throw {
      get message(): string {
        throw new Error("again")
      },
      toString(): string {
        throw new Error("again")
      },
    }
  },
  "answers with a promise": () => Promise.resolve(7),
  "answers with a promise that rejects": () => Promise.reject(new Error("late")),
  "recurses without end": function again(): unknown {
    return [again()]
  },
}

/** Longer than the event loop may stand still without a word, for a consumer without a group; in ms. */
const loneBlockMs = 1_400

export function typedDecodesChapter(rig: ClientRig): void {
  /** Good, bad, good. */
  const filled = async (): Promise<Topic> => {
    const topic = await rig.topic()
    await topic.producer().sendBatch(["0", "bad", "2"].map(encode))
    return topic
  }

  describe("a decode that misbehaves", () => {
    for (const [what, misdeed] of Object.entries(misdeeds)) {
      test(`${what}: that is its record's failure, by every door, and nobody else's`, async () => {
        const topic = await filled()
        const typed = topic.typed(misbehaving(misdeed))
        await using reader = await typed.records("reader")
        assert.deepEqual(
          (await reader.poll()).map(({ kind }) => kind),
          ["record", "error", "record"],
        )
        const consumer = typed.consumer("worker", 0, { commitPolicy: { kind: "each" } })
        assert.equal((await consumer.nextWithin(patienceMs)).value, 0)
        const error = await refused(() => consumer.nextWithin(patienceMs), {
          kind: "decode",
          outcome: "rejected",
          retryable: false,
          says: ["offset 1", "numbers"],
        })
        assert.ok(error instanceof TypedDecodeError)
        assert.equal(text(error.payload), "bad")
        assert.equal((await consumer.nextWithin(patienceMs)).value, 2)
        await consumer.shutdown()
        await refused(() => runUntilStop(typed, "runner"), { kind: "decode", says: ["offset 1"] })
        assert.equal(await storedBy(topic, "runner"), 0n)
      })
    }

    test("by each of a thousand records skips a thousand, tells and counts each, and stores what is behind them", async () => {
      const topic = await rig.topic()
      const count = 1_000
      await topic.producer().sendBatch([...new Array<string>(count).fill("bad"), "7"].map(encode))
      const typed = topic.typed(misbehaving(() => Promise.reject(new Error("late"))))
      const consumer = typed.consumer("worker", 0, { onDecodeError: "skip" })
      const offsets: bigint[] = []
      consumer.on({ skipped: ({ from }) => void offsets.push(from) })
      assert.equal((await consumer.nextWithin(patienceMs)).value, 7)
      assert.deepEqual(
        offsets,
        Array.from({ length: count }, (_, offset) => BigInt(offset)),
      )
      assert.equal(consumer.decodeFailures.skipped, count)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "worker"), BigInt(count))
    })

    test("a listener that throws at a skip fails the next read, and no more", async () => {
      const topic = await filled()
      const typed = topic.typed(misbehaving(() => assert.fail("no")))
      const consumer = typed.consumer("worker", 0, { onDecodeError: "skip" })
      consumer.on({
        skipped: () => {
          throw new Error("the listener's own")
        },
      })
      const seen: unknown[] = []
      let failed = 0
      while (seen.length < 2) {
        try {
          seen.push((await consumer.nextWithin(patienceMs)).value)
        } catch (error) {
          assert.match(String(error), /the listener's own/)
          failed++
        }
      }
      // Told to the read after the skip, which there may not be any more.
      await consumer.shutdown().catch((error) => {
        assert.match(String(error), /the listener's own/)
        failed++
      })
      assert.deepEqual([seen, failed], [[0, 2], 1])
    })
  })

  describe("a decode that takes long", () => {
    test("holds up the process for so long, and its consumer says so; nothing is lost", async () => {
      const topic = await filled()
      const typed = topic.typed(misbehaving(() => busy(loneBlockMs)))
      const consumer = typed.consumer("worker", 0)
      const blocks: LoopBlock[] = []
      consumer.on({ loopBlocked: (block) => void blocks.push(block) })
      const values: unknown[] = []
      for (let count = 0; count < 3; count++) values.push((await consumer.nextWithin(patienceMs)).value)
      assert.deepEqual(values, [0, loneBlockMs, 2])
      await until("the consumer to tell of the stop", () => (blocks.length > 0 ? true : undefined))
      assert.ok(blocks.every(({ delayMs, thresholdMs }) => thresholdMs === 1_000 && delayMs >= thresholdMs))
      await consumer.shutdown()
    })

    test("400 ms are told to a member whose session is short, which keeps its partition", async (t) => {
      const { groups, backend } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      if (/Kafka/.test(backend)) return t.skip("its brokers take no session time-out below 6 s")
      const topic = await filled()
      const typed = topic.typed(misbehaving(() => busy(400)))
      const member = await typed.consumerGroup("members").consumer({ sessionTimeoutMs: 750 })
      const blocks: LoopBlock[] = []
      member.on({ loopBlocked: (block) => void blocks.push(block) })
      const values = new Set<unknown>()
      while (values.size < 3) values.add((await member.nextWithin(patienceMs)).value)
      assert.deepEqual([...values], [0, 400, 2])
      await until("the member to tell of the stop", () => (blocks.length > 0 ? true : undefined))
      assert.ok(blocks.every(({ delayMs, thresholdMs }) => thresholdMs === 250 && delayMs >= thresholdMs))
      await member.shutdown()
    })
  })

  describe("a decode that calls back in", () => {
    test("may shut its consumer down: nothing hangs", async () => {
      const topic = await filled()
      let ending: Promise<void> | undefined
      const typed: TypedTopic<number> = topic.typed(
        misbehaving(() => {
          ending ??= consumer.shutdown()
          throw new Error("no")
        }),
      )
      const consumer = typed.consumer("worker", 0, { onDecodeError: "skip" })
      const loop = (async () => {
        const seen: unknown[] = []
        for await (const message of consumer) seen.push(message.value)
        return seen
      })()
      const seen = await settlesWithin("a loop whose decode ends its consumer", loop)
      assert.equal(seen[0], 0)
      await settlesWithin("the shutdown", ending as unknown as Promise<void>)
      await consumer.shutdown()
    })

    test("may read the same topic in the background", async () => {
      const topic = await filled()
      const inner: Promise<unknown>[] = []
      const typed: TypedTopic<number> = topic.typed(
        misbehaving(() => {
          inner.push(typed.records("inner").then((reader) => reader[Symbol.asyncDispose]()))
          return -1
        }),
      )
      await using reader = await typed.records("reader")
      const values = (await reader.poll()).map((result) => (result.kind === "record" ? result.value : result.kind))
      assert.deepEqual(values, [0, -1, 2])
      await Promise.all(inner)
    })
  })
}

/** Numbers as text; of the payload `bad` it does what it is told to. */
function misbehaving(misdeed: () => unknown): Codec<number> {
  return {
    name: "numbers",
    encode: (value) => encode(String(value)),
    decode(payload) {
      const said = text(payload)
      return said === "bad" ? (misdeed() as number) : Number(said)
    },
  }
}

/** Keeps the event loop for so long. */
function busy(forMs: number): number {
  const end = performance.now() + forMs
  while (performance.now() < end);
  return forMs
}

/** Runs until a record stops the run. */
async function runUntilStop(typed: TypedTopic<number>, name: string): Promise<void> {
  const consumer = typed.consumer(name, 0, { commitPolicy: { kind: "each" } })
  try {
    await settlesWithin(
      "a run",
      consumer.run(() => {}),
    )
  } finally {
    await consumer.shutdown()
  }
}
