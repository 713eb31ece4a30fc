import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import type { FeedUser } from "../handler/message-feed.ts"
import type { Lane } from "../partition/lane.ts"
import type { Message } from "../record/message.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { consumerSettings } from "./consumer-options.ts"
import { FakeClient, take, textOf, textsOf } from "./fake-session.test-support.ts"
import type { HandlerFeed } from "./handler-feed.ts"
import { LogConsumer } from "./log-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions): LogConsumer {
  const settings = consumerSettings("the consumer", options, { stores: true })
  const identity = {
    what: "the consumer",
    owner: { kind: "consumer", name: "worker" },
    partition: client.place(),
  } as const
  return new LogConsumer(client.context, identity, settings)
}

/** Takes what is there, each with its partition. */
function drain(feed: HandlerFeed): { readonly text: string; readonly offset: bigint; readonly lane: Lane }[] {
  const taken = []
  for (let message = feed.take(); message !== undefined; message = feed.take()) {
    taken.push({ text: textOf(message), offset: message.position.offset, lane: feed.lane as Lane })
  }
  return taken
}

/** Somebody who is told what happens, and does nothing about it. */
const user = (ready: () => void = () => {}): FeedUser => ({
  ready,
  dropped() {},
  draining: () => undefined,
  working: () => true,
  ending: async () => {},
})

const stored = (client: FakeClient): bigint | undefined => client.offsets.history.at(-1)?.offset

describe("a feed", () => {
  test("takes without handling: only what it says is handled is stored, without a gap", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client, { batchLength: 2, commitPolicy: { kind: "each" } })
    const feed = consumer.feed(user())
    feed.take()
    await client.settle()
    const taken = drain(feed)
    assert.equal(taken.length, 10)
    await client.settle()
    assert.equal(stored(client), undefined)
    for (const { lane, offset } of taken.filter((one) => one.offset !== 0n && one.offset !== 5n))
      feed.handled(lane, offset)
    await client.settle()
    assert.equal(stored(client), undefined)
    const { lane } = taken[0] as (typeof taken)[number]
    feed.handled(lane, 0n)
    await client.settle()
    assert.equal(stored(client), 5n)
    feed.handled(lane, 5n)
    await client.settle()
    assert.equal(stored(client), 10n)
    await consumer.shutdown()
  })

  test("tells when there is something again, and when the consumer ends", async () => {
    const client = new FakeClient()
    let told = 0
    const consumer = open(client)
    const feed = consumer.feed(user(() => told++))
    assert.equal(feed.take(), undefined)
    client.put(0, 1)
    await client.settle()
    assert.ok(told > 0)
    assert.equal(textOf(feed.take() as Message), "0")
    assert.equal(feed.take(), undefined)
    const before = told
    await consumer.shutdown()
    assert.ok(told > before && feed.ended)
    assert.equal(feed.take(), undefined)
  })

  test("a partition that is held gives nothing until it is freed, and loses nothing", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    const consumer = open(client)
    const feed = consumer.feed(user())
    feed.take()
    await client.settle()
    assert.equal(textOf(feed.take() as Message), "0")
    const lane = feed.lane as Lane
    feed.hold(lane)
    assert.equal(feed.take(), undefined)
    feed.free(lane)
    assert.deepEqual(
      drain(feed).map(({ text }) => text),
      ["1", "2", "3", "4"],
    )
    await consumer.shutdown()
  })

  test("what was taken and not handled comes again to whoever reads on, and counts for nothing at the end", async () => {
    const client = new FakeClient()
    client.put(0, 6)
    const consumer = open(client)
    const feed = consumer.feed(user())
    feed.take()
    await client.settle()
    const taken = drain(feed)
    const { lane } = taken[0] as (typeof taken)[number]
    feed.handled(lane, 0n)
    feed.handled(lane, 1n)
    feed.handled(lane, 4n)
    feed.release()
    assert.deepEqual(textsOf(await take(consumer, 3)), ["2", "3", "4"])
    await consumer[Symbol.asyncDispose]()
    assert.equal(stored(client), 4n)
  })

  test("what was handed out before it and not committed comes again, where only commits count", async () => {
    const client = new FakeClient()
    client.put(0, 6)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const [first] = await take(consumer, 3)
    await consumer.commit(first)
    const feed = consumer.feed(user())
    feed.take()
    await client.settle()
    assert.deepEqual(
      drain(feed).map(({ text }) => text),
      ["1", "2", "3", "4", "5"],
    )
    feed.release()
    await consumer.shutdown()
    assert.equal(stored(client), 1n)
  })

  test("released while a partition is being handed over: what nobody handled of it counts for nothing", async () => {
    const client = new FakeClient()
    client.put(0, 6)
    const consumer = open(client, { batchLength: 2 })
    const feed = consumer.feed(user())
    feed.take()
    await client.settle()
    drain(feed)
    const lane = [...consumer.lanes][0] as Lane
    feed.handled(lane, 0n)
    feed.handled(lane, 2n)
    consumer.stopHandingOut([lane])
    const clear = consumer.whenClear(lane)
    feed.release()
    await clear
    consumer.nextWithin(10).catch(() => {})
    await client.clock.advance(20)
    await consumer.storeHandled(lane)
    assert.equal(stored(client), 1n)
    await consumer.shutdown()
  })

  test("while it is open nobody else can take messages, nor open another", async () => {
    const client = new FakeClient()
    client.put(0, 6)
    const consumer = open(client)
    const feed = consumer.feed(user())
    feed.take()
    await client.settle()
    feed.take()
    await assert.rejects(consumer.next(), InvalidError)
    await assert.rejects(consumer.nextWithin(10), InvalidError)
    await assert.rejects(consumer.receiveRented(), InvalidError)
    assert.throws(() => consumer.feed(user()), InvalidError)
    feed.release()
    assert.equal((await take(consumer, 1)).length, 1)
    const waiting = open(new FakeClient())
    const pending = waiting.next()
    assert.throws(() => waiting.feed(user()), InvalidError)
    await waiting.shutdown()
    await pending
    await consumer.shutdown()
  })

  test("whatever is handled in whatever order, what is stored is the prefix, over holes too", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ size: fc.integer({ min: 1, max: 5 }), hole: fc.integer({ min: 0, max: 3 }) }), {
          minLength: 1,
          maxLength: 6,
        }),
        fc.infiniteStream(fc.nat()),
        async (batches, picks) => {
          const client = new FakeClient()
          let next = 0
          const offsets: bigint[] = []
          for (const { size, hole } of batches) {
            next += hole
            client.log.put(
              client.place(),
              Array.from({ length: size }, () => ({ payload: new Uint8Array(1) })),
              { at: BigInt(next) },
            )
            for (let each = 0; each < size; each++) offsets.push(BigInt(next + each))
            next += size
          }
          const consumer = open(client, { commitPolicy: { kind: "each" } })
          const feed = consumer.feed(user())
          feed.take()
          await client.settle()
          const open_ = drain(feed)
          await client.settle()
          open_.push(...drain(feed))
          while (open_.length > 0) {
            const [picked] = open_.splice((picks.next().value as number) % open_.length, 1)
            if (picked !== undefined) feed.handled(picked.lane, picked.offset)
            await client.settle()
            open_.push(...drain(feed))
            const first = open_[0]?.offset ?? BigInt(next)
            assert.ok((stored(client) ?? 0n) <= first, `stored ${stored(client)}, first unhandled ${first}`)
          }
          assert.equal(stored(client), BigInt(next))
          await consumer.shutdown()
        },
      ),
      { numRuns: 60 },
    )
  })
})
