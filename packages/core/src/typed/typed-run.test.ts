/** The handler of a typed consumer, and records that do not decode (case A-31). */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Codec } from "../codec/codec.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { deadLetterBlock } from "../handler/dead-letter-record.ts"
import type { OnDecodeError } from "./decoding.ts"
import { type AnyConsumer, isDecodeErrorAt, seen } from "./typed-doors.test-support.ts"
import { badDecodes, DeadTopic, failing, numbers, openTyped, putTexts } from "./typed-rig.test-support.ts"

describe("the handler of a typed consumer", () => {
  /** Runs until everything that can be is handled. */
  async function ran(
    client: FakeClient,
    of: { codec: Codec<number>; onDecodeError?: OnDecodeError },
    options: Parameters<AnyConsumer["run"]>[1],
  ): Promise<{ values: unknown[]; outcome: unknown; consumer: AnyConsumer }> {
    const consumer = openTyped(client, of, { commitPolicy: { kind: "each" } })
    const values: unknown[] = []
    let outcome: unknown
    const run = consumer
      .run((message) => void values.push(seen(message)), options)
      .catch((error) => {
        outcome = error
      })
    await client.clock.advance(5000)
    await consumer.shutdown()
    await run
    return { values, outcome, consumer }
  }

  for (const [what, bad] of Object.entries(badDecodes)) {
    test(`stops at a record whose decode ${what}, without an attempt, and does not store it`, async () => {
      const client = new FakeClient()
      putTexts(client, ["0", "bad", "2"])
      const told: unknown[] = []
      const retry = { attempts: 5 }
      const { values, outcome } = await ran(
        client,
        { codec: failing(bad) },
        { retry, onError: (error, next) => void told.push([error.kind, next]) },
      )
      assert.deepEqual(values, [0])
      assert.ok(isDecodeErrorAt(1n)(outcome))
      assert.deepEqual(told, [["decode", "stop"]])
      assert.equal(client.storedNext("worker"), 1n)
    })
  }

  test("skips as `onFailure` says", async () => {
    const client = new FakeClient()
    putTexts(client, ["0", "bad", "2"])
    const { values, outcome } = await ran(client, { codec: numbers }, { onFailure: "skip" })
    assert.deepEqual([values, outcome, client.storedNext("worker")], [[0, 2], undefined, 3n])
  })

  test("sends dead letters as `onFailure` says, with the bytes as they were sent", async () => {
    const client = new FakeClient()
    putTexts(client, ["0", "bad", "2"])
    const topic = new DeadTopic()
    const { values } = await ran(client, { codec: numbers }, { onFailure: deadLetter(topic), concurrency: 4 })
    assert.deepEqual([values, client.storedNext("worker")], [[0, 2], 3n])
    assert.equal(new TextDecoder().decode(topic.sent[0]?.payload as Uint8Array), "bad")
    const block = deadLetterBlock(topic.sent[0]?.headers as never)
    assert.deepEqual([block?.content, block?.kind, block?.attempts], ["message", "decode", 0])
  })

  test("never sees what `onDecodeError` has dealt with, and sees what is delivered raw", async () => {
    for (const [onDecodeError, expected] of [
      ["skip", [0, 2]],
      [deadLetter(new DeadTopic()), [0, 2]],
      ["deliver-raw", [0, "raw bad", 2]],
    ] as const) {
      const client = new FakeClient()
      putTexts(client, ["0", "bad", "2"])
      const { values, outcome } = await ran(client, { codec: numbers, onDecodeError }, {})
      assert.deepEqual([values, outcome, client.storedNext("worker")], [expected, undefined, 3n])
    }
  })
})
