import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError } from "@millrace/contract"
import type { FeedUser } from "../handler/message-feed.ts"
import { consumerSettings } from "./consumer-options.ts"
import { FakeClient, take, textsOf } from "./fake-session.test-support.ts"
import { LogConsumer } from "./log-consumer.ts"

function open(client: FakeClient): LogConsumer {
  const settings = consumerSettings("the consumer", {}, { stores: true })
  const identity = {
    what: "the consumer",
    owner: { kind: "consumer", name: "worker" },
    partition: client.place(),
  } as const
  return new LogConsumer(client.context, identity, settings)
}

const user: FeedUser = {
  ready() {},
  dropped() {},
  draining: () => undefined,
  working: () => true,
  ending: async () => {},
}

/** A consumer whose feed is released with three messages in hand while a seek looks for its place; `found` lets it. */
async function released(found: () => Promise<void>): Promise<{ consumer: LogConsumer; seeking: Promise<void> }> {
  const client = new FakeClient()
  client.put(0, 9)
  const consumer = open(client)
  await take(consumer, 2)
  const feed = consumer.feed(user)
  await client.settle()
  for (let n = 0; n < 3; n++) feed.take()
  client.log.beforeLocate = found
  const seeking = consumer.seek(0, { kind: "first" })
  feed.release()
  return { consumer, seeking }
}

describe("a feed that is released", () => {
  test("leaves nothing in the caller's hands", async () => {
    const client = new FakeClient()
    client.put(0, 9)
    const consumer = open(client)
    const feed = consumer.feed(user)
    await client.settle()
    feed.take()
    await client.settle()
    feed.take()
    feed.release()
    assert.equal(consumer.inHand, false)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["0"])
    assert.equal(consumer.inHand, true)
    await consumer.shutdown()
  })

  test("does not overrule a seek that looks for its place", async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const { consumer, seeking } = await released(() => promise)
    resolve()
    await seeking
    assert.deepEqual(textsOf(await take(consumer, 2)), ["0", "1"])
    await consumer.shutdown()
  })

  test("comes back to what was not handled when such a seek fails", async () => {
    const { consumer, seeking } = await released(() => Promise.reject(new ConnectionError("reset")))
    await assert.rejects(seeking, ConnectionError)
    assert.deepEqual(textsOf(await take(consumer, 3)), ["2", "3", "4"])
    await consumer.shutdown()
  })
})
