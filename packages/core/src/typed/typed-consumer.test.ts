/** Typed consumers: values, tombstones, and what does not decode, by every way of taking and every policy (cases ). */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError, type MillraceError } from "@millrace/contract"
import type { Codec } from "../codec/codec.ts"
import type { Skip } from "../consumer/consumer-events.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { deadLetterBlock } from "../handler/dead-letter-record.ts"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import { TypedDecodeError } from "./typed-decode-error.ts"
import { doors, isDecodeErrorAt, seen } from "./typed-doors.test-support.ts"
import { badDecodes, DeadTopic, failing, numbers, openTyped, putTexts } from "./typed-rig.test-support.ts"

for (const [door, taking] of Object.entries(doors)) {
  describe(`a typed consumer, by ${door}`, () => {
    test("gives values, and tombstones without asking the codec (A-17)", async () => {
      const client = new FakeClient()
      putTexts(client, ["1", null, "3"])
      const consumer = openTyped(client, { codec: numbers })
      assert.deepEqual(await taking(consumer, 3), [1, "tombstone", 3])
      await consumer.shutdown()
    })

    for (const [what, bad] of Object.entries(badDecodes)) {
      test(`a decode that ${what} is the record's error, in its place; the next call goes on (A-31, stop)`, async () => {
        const client = new FakeClient()
        putTexts(client, ["0", "bad", "2"])
        const consumer = openTyped(client, { codec: failing(bad) })
        assert.deepEqual(await taking(consumer, 1), [0])
        await assert.rejects(taking(consumer, 1), isDecodeErrorAt(1n))
        assert.deepEqual(await taking(consumer, 1), [2])
        assert.deepEqual(consumer.decodeFailures, { told: 1, skipped: 0, deliveredRaw: 0, deadLettered: 0 })
        await consumer.shutdown()
      })
    }

    test("skips what does not decode, tells of it and counts it (A-31, skip)", async () => {
      const client = new FakeClient()
      putTexts(client, ["bad", "1", "bad", "bad", "4", "bad"])
      const consumer = openTyped(client, { codec: numbers, onDecodeError: "skip" })
      const skips: Skip[] = []
      consumer.on({ skipped: (skip) => void skips.push(skip) })
      assert.deepEqual(await taking(consumer, 2), [1, 4])
      const more = consumer.nextWithin(10).catch((error) => (error as MillraceError).kind)
      await client.clock.advance(20)
      assert.equal(await more, "timeout")
      assert.deepEqual(
        skips.map(({ stream, topic, partition, from, to, count, error }) => [
          [stream, topic, partition, from, to, count],
          error instanceof TypedDecodeError,
        ]),
        [0n, 2n, 3n, 5n].map((from) => [["s", "t", 0, from, from + 1n, 1n], true]),
      )
      assert.deepEqual(consumer.decodeFailures, { told: 0, skipped: 4, deliveredRaw: 0, deadLettered: 0 })
      await consumer[Symbol.asyncDispose]()
      assert.equal(client.storedNext("worker"), 6n, "what was skipped counts as handled")
    })

    test("delivers what does not decode as bytes that say so (A-31, deliver-raw)", async () => {
      const client = new FakeClient()
      putTexts(client, ["0", "bad", null, "3"])
      const consumer = openTyped(client, { codec: numbers, onDecodeError: "deliver-raw" })
      assert.deepEqual(await taking(consumer, 4), [0, "raw bad", "tombstone", 3])
      assert.deepEqual(consumer.decodeFailures, { told: 0, skipped: 0, deliveredRaw: 1, deadLettered: 0 })
      const more = consumer.nextWithin(10).catch(() => {})
      await client.clock.advance(10)
      await more
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 4n)
    })

    test("sends what does not decode to its dead-letter topic before anything behind it (A-31, dead-letter)", async () => {
      const client = new FakeClient()
      putTexts(client, ["0", "bad", "2", "bad"])
      const topic = new DeadTopic()
      const confirmed = Promise.withResolvers<void>()
      topic.gate = confirmed.promise
      const consumer = openTyped(
        client,
        { codec: numbers, onDecodeError: deadLetter(topic) },
        { commitPolicy: { kind: "each" } },
      )
      assert.deepEqual(await taking(consumer, 1), [0])
      const rest = taking(consumer, 1)
      await client.clock.advance(500)
      assert.equal(topic.sent.length, 1)
      assert.equal(client.storedNext("worker"), 1n, "nothing is stored past it before that is confirmed")
      putTexts(client, ["4"])
      await client.clock.advance(10)
      confirmed.resolve()
      assert.deepEqual(await rest, [2])
      assert.equal((await consumer.nextWithin(1000)).value, 4)
      const end = consumer.nextWithin(10).catch((error) => (error as MillraceError).kind)
      await client.clock.advance(20)
      assert.equal(await end, "timeout")
      assert.equal(client.storedNext("worker"), 5n)
      assert.deepEqual(
        topic.sent.map(({ payload, headers }) => {
          const block = deadLetterBlock(headers as never)
          return [
            new TextDecoder().decode(payload as Uint8Array),
            block?.offset,
            block?.kind,
            block?.content,
            block?.attempts,
          ]
        }),
        [
          ["bad", 1n, "decode", "message", 0],
          ["bad", 3n, "decode", "message", 0],
        ],
      )
      assert.deepEqual(consumer.decodeFailures, { told: 0, skipped: 0, deliveredRaw: 0, deadLettered: 2 })
      await consumer.shutdown()
    })
  })
}

const policies: readonly CommitPolicy[] = [
  { kind: "polling" },
  { kind: "all" },
  { kind: "each" },
  { kind: "every", count: 2 },
  { kind: "interval", intervalMs: 10 },
  { kind: "auto", after: "delivery", every: "message" },
  { kind: "auto", after: "processing", every: "batch" },
]

describe("what is stored behind a record that does not decode", () => {
  for (const commitPolicy of policies) {
    const name = JSON.stringify(commitPolicy)
    test(`a stopped one is not handled by a shutdown, and comes again (${name})`, async () => {
      const client = new FakeClient()
      putTexts(client, ["0", "bad", "2"])
      const consumer = openTyped(client, { codec: numbers }, { commitPolicy })
      await consumer.nextWithin(1000)
      await assert.rejects(consumer.next(), isDecodeErrorAt(1n))
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 1n)
      const again = openTyped(client, { codec: numbers }, { commitPolicy })
      await assert.rejects(again.nextWithin(1000), isDecodeErrorAt(1n))
      await again.seek(0, { kind: "offset", value: 2n })
      assert.equal((await again.nextWithin(1000)).value, 2, "reading goes on behind it after a seek")
      await again.shutdown()
    })

    test(`a skipped one is handled as soon as it is skipped, whoever ends the scope (${name})`, async () => {
      const client = new FakeClient()
      putTexts(client, ["0", "bad"])
      const consumer = openTyped(client, { codec: numbers, onDecodeError: "skip" }, { commitPolicy })
      await consumer.nextWithin(1000)
      const end = consumer.nextWithin(5).catch(() => {})
      await client.clock.advance(5)
      await end
      await consumer[Symbol.asyncDispose]()
      assert.equal(client.storedNext("worker"), 2n)
    })

    test(`no store passes one whose dead letter is not confirmed (${name})`, async () => {
      const client = new FakeClient()
      putTexts(client, ["0", "1", "bad", "3"])
      const topic = new DeadTopic()
      topic.gate = new Promise(() => {})
      const consumer = openTyped(client, { codec: numbers, onDecodeError: deadLetter(topic) }, { commitPolicy })
      await consumer.nextWithin(1000)
      await consumer.nextWithin(1000)
      const waiting = consumer.next().catch(() => {})
      await client.clock.advance(60_000)
      assert.equal(topic.sent.length, 1)
      if (commitPolicy.kind === "interval") {
        assert.equal(client.storedNext("worker"), 2n, "whoever asked for more has handled what came before")
      }
      putTexts(client, ["4"])
      await client.clock.advance(10)
      assert.equal(topic.sent.length, 1, "what comes meanwhile waits behind it")
      const ending = assert.rejects(consumer.shutdown({ timeoutMs: 100 }), /dead letters/)
      await client.clock.advance(200)
      await ending
      await waiting
      assert.equal(client.storedNext("worker"), 2n)
    })
  }

  test("with manual commits nothing is stored by itself, and what was skipped opens no gap", async () => {
    const client = new FakeClient()
    putTexts(client, ["0", "bad", "2", "3"])
    const consumer = openTyped(
      client,
      { codec: numbers, onDecodeError: "skip" },
      { commitPolicy: { kind: "disabled" } },
    )
    const first = await consumer.nextWithin(1000)
    const third = await consumer.nextWithin(1000)
    assert.equal(client.storedNext("worker"), undefined)
    consumer.mark(first)
    consumer.mark(third)
    await client.clock.advance(1)
    assert.equal(client.storedNext("worker"), 3n)
    await consumer.shutdown()
  })

  test('`seek(partition, "skip")` makes a stopped one handled', async () => {
    const client = new FakeClient()
    putTexts(client, ["0", "bad", "2"])
    const consumer = openTyped(client, { codec: numbers }, { commitPolicy: { kind: "each" } })
    await consumer.nextWithin(1000)
    await assert.rejects(consumer.next(), isDecodeErrorAt(1n))
    await consumer.seek(0, "skip")
    await client.settle()
    assert.equal(client.storedNext("worker"), 2n)
    assert.equal((await consumer.nextWithin(1000)).value, 2)
    await consumer.shutdown()
  })
})

describe("a typed message", () => {
  test("copied, has a value of its own", async () => {
    const client = new FakeClient()
    putTexts(client, ['{"n":1}'])
    const codec: Codec<{ n: number }> = {
      name: "j",
      encode: () => new Uint8Array(0),
      decode: (payload) => JSON.parse(new TextDecoder().decode(payload)),
    }
    const consumer = openTyped(client, { codec })
    const message = await consumer.nextWithin(1000)
    assert.ok(message.kind === "record")
    const copy = message.copy() as typeof message
    message.value.n = 2
    assert.deepEqual([copy.kind, copy.value], ["record", { n: 1 }])
    assert.deepEqual(copy.position, message.position)
    await consumer.shutdown()
  })

  test("of a codec that asks for tombstones has their value", async () => {
    const client = new FakeClient()
    putTexts(client, ["1", null])
    const codec: Codec<number> = { ...failing(() => 0), decodeTombstone: () => -1 }
    const consumer = openTyped(client, { codec })
    assert.deepEqual([seen(await consumer.nextWithin(1000)), seen(await consumer.nextWithin(1000))], [1, -1])
    await consumer.shutdown()
  })

  test("of a rented batch is out of reach once that was given back", async () => {
    const client = new FakeClient()
    putTexts(client, ["1"])
    const consumer = openTyped(client, { codec: numbers })
    const batch = await consumer.receiveRented()
    const message = batch.message(0)
    assert.deepEqual([message.kind, message.value], ["record", 1])
    batch[Symbol.dispose]()
    assert.throws(() => message.value, InvalidError)
    await consumer.shutdown()
  })
})

test("an unknown onDecodeError is refused by its value", () => {
  const client = new FakeClient()
  assert.throws(
    () => openTyped(client, { codec: numbers, onDecodeError: "ignore" as never }),
    (error) => error instanceof InvalidError && /"onDecodeError" is "ignore"/.test(error.message),
  )
})
