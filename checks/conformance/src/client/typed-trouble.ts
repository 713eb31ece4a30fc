/** Chapter: records that do not decode: each policy, by each way of taking, under each commit policy; and decodes that misbehave. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  type CommitPolicy,
  deadLetter,
  type OnDecodeError,
  type Skip,
  type Topic,
  TypedDecodeError,
  type TypedOrRawMessage,
} from "millrace"
import { type ClientRig, encode } from "../rig/client-rig.ts"
import { text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { numbers, type Taker, type Way, ways } from "../rig/typed-taker.ts"

const commitPolicies: readonly CommitPolicy[] = [{ kind: "polling" }, { kind: "each" }, { kind: "disabled" }]

export function typedTroubleChapter(rig: ClientRig): void {
  /** Good, corrupt, good; one batch each, so that the store of every backend can stand between any two. */
  const corrupted = async (): Promise<Topic> => {
    const topic = await rig.topic()
    const producer = topic.producer()
    await producer.send(encode("0"))
    await producer.send(encode("bad"), { key: "k", headers: { h: "v" } })
    await producer.send(encode("2"))
    await producer.shutdown()
    return topic
  }
  for (const way of ways) {
    describe(`A-31, taken by ${way.name}`, () => {
      test("stop: the error comes in its place, with offset and bytes; nothing is stored past it before it is told, nor by a shutdown", async () => {
        const topic = await corrupted()
        await eachPolicy({ rig, way, topic }, async (taker, stores) => {
          assert.equal(seen(await taker.take()), 0)
          await taker.handled()
          await notPast(taker, 0n)
          const error = await told(taker)
          assert.equal(error.record.position.offset, 1n)
          assert.equal(text(error.payload), "bad")
          assert.equal(error.record.headers.get("h")?.value, "v")
          await taker.shutdown()
          assert.equal(await taker.stored(), stores ? 0n : undefined)
          assert.equal(taker.decodeFailures().told, 1)
          const again = await taker.reopened()
          assert.deepEqual(await takenUntilTold(again), stores ? [] : [0], "what is not handled comes again")
          await again.shutdown()
          await notPast(taker, 0n)
        })
      })

      test("stop: a seek past it makes it handled, and reading goes on behind it", async () => {
        const topic = await corrupted()
        await eachPolicy({ rig, way, topic }, async (taker, stores) => {
          assert.equal(seen(await taker.take()), 0)
          await told(taker)
          await taker.seek("skip")
          assert.equal(seen(await taker.take()), 2)
          await taker.handled()
          await taker.shutdown()
          assert.equal(await taker.stored(), stores ? 2n : undefined)
        })
      })

      test("stop: a seek past it is stored by a shutdown that follows at once", async () => {
        const topic = await corrupted()
        await eachPolicy({ rig, way, topic }, async (taker, stores) => {
          assert.equal(seen(await taker.take()), 0)
          await taker.handled()
          await told(taker)
          await taker.seek("skip")
          await taker.shutdown()
          assert.equal(await taker.stored(), stores ? 1n : undefined)
          const again = await taker.reopened()
          assert.deepEqual(stores ? seen(await again.take()) : await takenUntilTold(again), stores ? 2 : [0])
          await again.shutdown()
        })
      })

      test("stop: a seek to the offset behind it goes on there too", async () => {
        const topic = await corrupted()
        await eachPolicy({ rig, way, topic }, async (taker) => {
          assert.equal(seen(await taker.take()), 0)
          await told(taker)
          await taker.seek({ kind: "offset", value: 2n })
          assert.equal(seen(await taker.take()), 2)
        })
      })

      test("skip: nobody gets it; an event has its offset and error, and it is counted", async () => {
        const topic = await corrupted()
        await eachPolicy({ rig, way, topic, onDecodeError: () => "skip" }, async (taker, stores) => {
          const skips: Skip[] = []
          taker.on({ skipped: (skip) => void skips.push(skip) })
          assert.deepEqual([seen(await taker.take()), seen(await taker.take())], [0, 2])
          await taker.handled()
          assert.deepEqual(
            skips.map(({ partition, from, to, count }) => [partition, from, to, count]),
            [[0, 1n, 2n, 1n]],
          )
          assert.ok(skips[0]?.error instanceof TypedDecodeError)
          assert.deepEqual(taker.decodeFailures(), { told: 0, skipped: 1, deliveredRaw: 0, deadLettered: 0 })
          await taker.shutdown()
          assert.equal(await taker.stored(), stores ? 2n : undefined)
        })
      })

      test("deliver-raw: it comes as its bytes, and says so", async () => {
        const topic = await corrupted()
        await eachPolicy({ rig, way, topic, onDecodeError: () => "deliver-raw" }, async (taker, stores) => {
          const values = [seen(await taker.take()), seen(await taker.take()), seen(await taker.take())]
          assert.deepEqual(values, [0, "raw bad", 2])
          await taker.handled()
          assert.deepEqual(taker.decodeFailures(), { told: 0, skipped: 0, deliveredRaw: 1, deadLettered: 0 })
          await taker.shutdown()
          assert.equal(await taker.stored(), stores ? 2n : undefined)
        })
      })

      test("dead-letter: its bytes and the reasons are in the dead-letter topic before anything past it is stored", async () => {
        const topic = await corrupted()
        const graves: Topic[] = []
        const onDecodeError = (): OnDecodeError => {
          const grave = rig.handle()
          graves.push(grave)
          return deadLetter(grave)
        }
        await eachPolicy({ rig, way, topic, onDecodeError }, async (taker, stores) => {
          assert.deepEqual([seen(await taker.take()), seen(await taker.take())], [0, 2])
          await taker.handled()
          assert.deepEqual(taker.decodeFailures(), { told: 0, skipped: 0, deliveredRaw: 0, deadLettered: 1 })
          await taker.shutdown()
          assert.equal(await taker.stored(), stores ? 2n : undefined)
        })
        for (const grave of graves) {
          const reader = await grave.replay()
          const letters = await reader.poll()
          await reader[Symbol.asyncDispose]()
          assert.equal(letters.length, 1)
          const [letter] = letters
          assert.ok(letter?.kind === "record")
          const { payload, key, headers } = letter.value
          assert.deepEqual([text(payload), text(key), headers.get("h")?.value], ["bad", "k", "v"])
          assert.equal(headers.get("millrace-dead-topic")?.value, topic.name)
          assert.equal(headers.get("millrace-dead-offset")?.value, 1n)
          assert.equal(headers.get("millrace-dead-kind")?.value, "decode")
          assert.match(String(headers.get("millrace-dead-error")?.value), /does not decode as JSON/)
        }
      })

      test("dead-letter: while it cannot be sent, the reason is told and nothing past it is stored, also by a shutdown", async () => {
        const topic = await corrupted()
        // Never created, and not to be.
        const onDecodeError = (): OnDecodeError => deadLetter(rig.handle(), { createTopic: false })
        await eachPolicy({ rig, way, topic, onDecodeError }, async (taker) => {
          assert.equal(seen(await taker.take()), 0)
          for (let round = 0; round < 2; round++) {
            await refused(() => taker.take(), { kind: "not-found", says: ["dead-letter topic"] })
            await notPast(taker, 0n)
          }
          await taker.shutdown()
          await notPast(taker, 0n)
        })
      })

      test("A-17: a tombstone is no failure under any policy", async () => {
        const topic = await rig.topic()
        await topic.json(numbers).producer().sendBatch([0, null, 2])
        for (const onDecodeError of ["stop", "skip", "deliver-raw"] as const) {
          await eachPolicy({ rig, way, topic, onDecodeError: () => onDecodeError }, async (taker) => {
            const values = [seen(await taker.take()), seen(await taker.take()), seen(await taker.take())]
            assert.deepEqual(values, [0, "tombstone", 2])
          })
        }
      })
    })
  }
}

/** One taker for each commit policy that matters, each under a name of its own, at the same time. */
async function eachPolicy(
  of: {
    readonly rig: ClientRig
    readonly way: Way
    readonly topic: Topic
    readonly onDecodeError?: () => OnDecodeError
  },
  check: (taker: Taker, stores: boolean) => Promise<void>,
): Promise<void> {
  const { rig, way, topic, onDecodeError = () => "stop" as const } = of
  const policies = way.acknowledges ? commitPolicies.slice(0, 1) : commitPolicies
  await Promise.all(
    policies.map(async (commitPolicy) => {
      const name = rig.name(commitPolicy.kind)
      const taker = await way.open(topic, { name, commitPolicy, onDecodeError: onDecodeError() })
      try {
        await check(taker, commitPolicy.kind !== "disabled")
      } finally {
        await taker.shutdown()
      }
    }),
  )
}

/** What a message is, in one word. */
function seen(message: TypedOrRawMessage<number>): unknown {
  if (message.kind === "record") return message.value
  return message.kind === "raw" ? `raw ${text(message.value)}` : message.kind
}

async function told(taker: Taker): Promise<TypedDecodeError> {
  const error = await refused(() => taker.take(), { kind: "decode", outcome: "rejected", retryable: false })
  assert.ok(error instanceof TypedDecodeError)
  return error
}

/** What comes before the record that does not decode. */
async function takenUntilTold(taker: Taker): Promise<unknown[]> {
  const values: unknown[] = []
  for (;;) {
    try {
      values.push(seen(await taker.take()))
    } catch (error) {
      assert.ok(error instanceof TypedDecodeError, String(error))
      assert.equal(error.record.position.offset, 1n)
      return values
    }
  }
}

async function notPast(taker: Taker, offset: bigint): Promise<void> {
  const stored = await taker.stored()
  assert.ok(stored === undefined || stored <= offset, `${stored} is stored, past ${offset}`)
}
