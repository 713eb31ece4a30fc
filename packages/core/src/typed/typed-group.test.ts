/** Members and page readers of a group whose messages have values. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Codec } from "../codec/codec.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { openGroupReader } from "../group/group-page-reader.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { decodingOf, type OnDecodeError } from "./decoding.ts"
import type { TypedConsumer, TypedGroupReader } from "./typed-consumer.ts"
import { TypedDecodeError } from "./typed-decode-error.ts"
import { DeadTopic, numbers, putTexts } from "./typed-rig.test-support.ts"

function source(client: FakeClient, onDecodeError: OnDecodeError): Parameters<typeof openGroupConsumer>[1] {
  client.groups.membership.tell({ assigned: Array.from({ length: client.partitions }, (_, n) => client.claim(n)) })
  return { topic: client.topic, group: "g", decoding: decodingOf("g", numbers as Codec<unknown>, onDecodeError) }
}

async function member(client: FakeClient, onDecodeError: OnDecodeError): Promise<TypedConsumer<number>> {
  const options = { commitPolicy: { kind: "each" } } as const
  return (await openGroupConsumer(client.context, source(client, onDecodeError), options)) as never
}

async function pages(client: FakeClient, onDecodeError: OnDecodeError): Promise<TypedGroupReader<number>> {
  return (await openGroupReader(client.context, source(client, onDecodeError))) as never
}

describe("a typed member", () => {
  test("reads on in other partitions while a dead letter of one is on its way", async () => {
    const client = new FakeClient({ partitions: 2 })
    putTexts(client, ["bad", "1"], 0)
    putTexts(client, ["10", "11"], 1)
    const topic = new DeadTopic()
    const confirmed = Promise.withResolvers<void>()
    topic.gate = confirmed.promise
    const consumer = await member(client, deadLetter(topic))
    assert.deepEqual([(await consumer.nextWithin(1000)).value, (await consumer.nextWithin(1000)).value], [10, 11])
    const waiting = consumer.nextWithin(1000)
    await client.clock.advance(100)
    assert.equal(topic.sent.length, 1)
    putTexts(client, ["12"], 1)
    assert.equal((await waiting).value, 12)
    confirmed.resolve()
    assert.equal((await consumer.nextWithin(1000)).value, 1)
    await consumer.shutdown()
    assert.deepEqual([client.groupNext("g", 0), client.groupNext("g", 1)], [2n, 3n])
  })

  test("that loses a partition whose dead letter is on its way leaves the record to the next one", async () => {
    const client = new FakeClient()
    putTexts(client, ["0", "bad", "2"])
    const topic = new DeadTopic()
    const confirmed = Promise.withResolvers<void>()
    topic.gate = confirmed.promise
    const consumer = await member(client, deadLetter(topic))
    assert.equal((await consumer.nextWithin(1000)).value, 0)
    const waiting = consumer.nextWithin(60_000).catch((error) => error.kind)
    await client.clock.advance(10)
    assert.equal(topic.sent.length, 1)
    client.groups.membership.tell({ revoked: [client.claim(0)] })
    await client.clock.advance(10_000)
    assert.deepEqual(
      client.groups.membership.released.map(({ partition }) => partition),
      [0],
    )
    confirmed.resolve()
    await client.clock.advance(60_000)
    assert.equal(await waiting, "timeout")
    assert.equal(client.groupNext("g"), 1n, "what was not confirmed in time is the next member's")
    await consumer.shutdown()
  })
})

describe("the pages of a typed reader", () => {
  test("have values, end before what does not decode, and go on behind a seek", async () => {
    const client = new FakeClient()
    putTexts(client, ["0", null, "bad", "3"])
    const reader = await pages(client, "stop")
    const first = await reader.nextWithin(1000)
    assert.deepEqual(
      first.messages.map((message) => [message.kind, message.value]),
      [
        ["record", 0],
        ["tombstone", undefined],
      ],
    )
    await assert.rejects(reader.nextWithin(1000), TypedDecodeError)
    await reader.ackPage(first)
    await reader.seek(0, "skip")
    const second = await reader.nextWithin(1000)
    assert.equal(second.messages[0]?.value, 3)
    await reader.ackPage(second)
    assert.equal(reader.decodeFailures.told, 1)
    await reader.shutdown()
    assert.equal(client.groupNext("g"), 4n)
  })

  test("leave out what is skipped, which counts as acknowledged", async () => {
    const client = new FakeClient()
    putTexts(client, ["bad", "1", "bad", "3", "bad"])
    const reader = await pages(client, "skip")
    const values: unknown[] = []
    const open = []
    while (values.length < 2) {
      const page = await reader.nextWithin(1000)
      values.push(...page.messages.map(({ value }) => value))
      open.push(page)
    }
    assert.deepEqual(values, [1, 3])
    for (const page of open) await reader.ackPage(page)
    await client.clock.advance(10)
    await reader.shutdown()
    assert.deepEqual([client.groupNext("g"), reader.decodeFailures.skipped], [5n, 3])
  })
})
