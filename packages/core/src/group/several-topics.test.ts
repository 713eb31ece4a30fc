import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError, NotAssignedError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import { FakeClient, take, textOf } from "../consumer/fake-session.test-support.ts"
import { openGroupConsumer } from "./group-consumer.ts"

const other = { stream: "s", topic: "other" } as const

/** A member with partition 0 of two topics, three records in each. */
async function open(client: FakeClient): Promise<Consumer> {
  client.put(0, 3)
  const place = { ...other, partition: 0 }
  const payloads = ["a", "b", "c"].map((text) => ({ payload: new TextEncoder().encode(text) }))
  client.log.add(place)
  client.log.put(place, payloads)
  client.groups.membership.tell({ assigned: [client.claim(0), { ...place, token: "other" }] })
  const topics = [{ stream: other.stream, name: other.topic }]
  return openGroupConsumer(
    client.context,
    { topic: client.topic, group: "g" },
    { topics, commitPolicy: { kind: "disabled" } },
  )
}

test("a partition is named by its place where two topics have one of its number", async () => {
  const client = new FakeClient()
  const consumer = await open(client)
  const place = { ...other, partition: 0 }
  await take(consumer, 6)
  const ambiguous = (error: unknown): boolean =>
    error instanceof InvalidError &&
    /several topics .*"s\/other".*name it by \{ stream, topic, partition \}/.test(error.message)
  await assert.rejects(consumer.seek(0, { kind: "first" }), ambiguous)
  await assert.rejects(consumer.storeOffset(0n, 0), ambiguous)
  await consumer.seek(place, { kind: "offset", value: 1n })
  assert.deepEqual((await take(consumer, 2)).map(textOf), ["b", "c"])
  await consumer.storeOffset(1n, place)
  assert.equal((await consumer.storedOffset(place))?.stored, 1n)
  assert.equal(await consumer.storedOffset({ ...client.topic, partition: 0 }), undefined)
  assert.equal(consumer.lastStoredOffset(place), 1n)
  await consumer.deleteOffset(place)
  assert.equal(await consumer.storedOffset(place), undefined)
  await consumer.shutdown()
})

test("one of two partitions of the same number is paused, and another topic's is refused by name", async () => {
  const client = new FakeClient()
  const consumer = await open(client)
  consumer.pause([{ ...other, partition: 0 }])
  assert.deepEqual((await take(consumer, 3)).map(textOf), ["0", "1", "2"])
  consumer.resume([{ ...other, partition: 0 }])
  assert.deepEqual((await take(consumer, 3)).map(textOf), ["a", "b", "c"])
  assert.throws(
    () => consumer.pause([{ stream: "s", topic: "third", partition: 0 }]),
    (error: unknown) =>
      error instanceof NotAssignedError && /partition 0 of topic "s\/third" is not assigned/.test(error.message),
  )
  await consumer.shutdown()
})
