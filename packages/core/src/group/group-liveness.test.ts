/** A member whose caller takes too long, or whose membership fails, and how it comes back. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, FencedError, NotAssignedError, NotFoundError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { OverdueHandling } from "../consumer/consumer-events.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take, textOf, textsOf } from "../consumer/fake-session.test-support.ts"
import type { LogConsumer } from "../consumer/log-consumer.ts"
import type { Message } from "../record/message.ts"
import { openGroupConsumer } from "./group-consumer.ts"

async function open(
  client: FakeClient,
  partitions: readonly number[],
  options?: GroupConsumerOptions,
): Promise<Consumer> {
  client.groups.membership.tell({ assigned: partitions.map((one) => client.claim(one, `first ${one}`)) })
  return openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)
}

/** The user of a feed who is told nothing that matters. */
const feedUser = {
  ready: (): void => {},
  dropped: (): void => {},
  working: (): boolean => true,
  draining: (): undefined => undefined,
  ending: (): Promise<void> => Promise.resolve(),
  shutdownCalled: (): void => {},
}

function filled(partitions: number, records: number): FakeClient {
  const client = new FakeClient({ partitions })
  for (let partition = 0; partition < partitions; partition++) client.put(0, records, partition)
  return client
}

/** Notes what is told, in order. */
function noted(consumer: Consumer): string[] {
  const told: string[] = []
  const note = (name: string) => (places: readonly { partition: number }[]) =>
    void told.push(`${name} ${places.map(({ partition }) => partition).join(",")}`)
  consumer.on({
    assigned: note("assigned"),
    revoked: note("revoked"),
    lost: note("lost"),
    handlerTimeout: () => void told.push("handlerTimeout"),
  })
  return told
}

describe("with handlerTimeoutMs", () => {
  test("a caller that does not come back costs the membership, and its late commit is refused (A-27)", async () => {
    const client = filled(2, 10)
    const first = client.groups.membership
    const consumer = await open(client, [0, 1], { handlerTimeoutMs: 10_000, commitPolicy: { kind: "disabled" } })
    const told = noted(consumer)
    const overdue: OverdueHandling[] = []
    consumer.on({ handlerTimeout: (event) => void overdue.push(event) })
    const [message] = await take(consumer, 1)
    await client.clock.advance(9_900)
    assert.deepEqual(told, ["assigned 0,1"])
    assert.equal(first.left, false)
    await client.clock.advance(2_100)
    assert.deepEqual(told, ["assigned 0,1", "handlerTimeout", "revoked 0,1"])
    assert.ok((overdue[0]?.forMs ?? 0) >= 10_000)
    assert.equal(first.left, true, "the partitions are free for others")
    await assert.rejects(consumer.commit(message), NotAssignedError)
    assert.equal(client.groupNext("g"), undefined)
    await client.clock.advance(600_000)
    assert.equal(client.groups.joins.length, 1, "it stays away while its caller does")
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("the caller that comes back joins again and goes on behind what is stored", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { handlerTimeoutMs: 10_000 })
    await take(consumer, 4)
    await client.clock.advance(15_000)
    assert.equal(client.groupNext("g"), 3n, "what was handled is stored, the message in hand is not")
    const waiting = consumer.next()
    await client.settle()
    assert.equal(client.groups.joins.length, 2)
    client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
    assert.equal(textOf((await waiting).value as Message), "3")
    await take(consumer, 1)
    await consumer.shutdown()
    assert.equal(client.offsets.history.at(-1)?.claim?.token, "second")
    assert.equal(client.groups.membership.left, true)
  })

  test("a caller that waits, or reads on in time, is left alone", async () => {
    const client = filled(1, 6)
    const consumer = await open(client, [0], { handlerTimeoutMs: 1000 })
    const told = noted(consumer)
    for (let read = 0; read < 6; read++) {
      await take(consumer, 1)
      await client.clock.advance(900)
    }
    const waiting = consumer.next()
    await client.clock.advance(60_000)
    assert.deepEqual(told, ["assigned 0"])
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
  })

  test("whatever the policy counts as handled: a caller that has a message in hand is the one who is timed", async () => {
    for (const commitPolicy of [{ kind: "auto", after: "delivery" }, { kind: "each" }, { kind: "onRead" }] as const) {
      const client = filled(1, 10)
      const consumer = await open(client, [0], { handlerTimeoutMs: 1000, commitPolicy })
      await take(consumer, 2)
      await client.clock.advance(2000)
      assert.equal(client.groups.membership.left, true, commitPolicy.kind)
      await consumer.shutdown()
    }
  })

  test("of a feed the partition's oldest message is timed, and is named", async () => {
    const client = filled(2, 10)
    const consumer = (await open(client, [0, 1], { handlerTimeoutMs: 1000 })) as LogConsumer
    const overdue: OverdueHandling[] = []
    consumer.on({ handlerTimeout: (event) => void overdue.push(event) })
    await client.settle()
    const feed = consumer.feed(feedUser)
    const stuck = feed.take() as Message
    const stuckLane = feed.lane
    assert.equal(stuck.position.offset, 0n)
    for (let step = 0; step < 30 && overdue.length === 0; step++) {
      const message = feed.take()
      const { lane } = feed
      if (message !== undefined && lane !== undefined && lane !== stuckLane) feed.handled(lane, message.position.offset)
      await client.clock.advance(100)
    }
    assert.equal(overdue[0]?.partition?.partition, stuck.position.partition)
    assert.equal(overdue[0]?.offset, 0n)
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("of a run, what waits for its turn while others are handled, or is paused, is in nobody's hands", async () => {
    const client = filled(2, 4)
    const consumer = await open(client, [0, 1], { handlerTimeoutMs: 1000 })
    const overdue: OverdueHandling[] = []
    consumer.on({ handlerTimeout: (event) => void overdue.push(event) })
    let handled = 0
    const handler = (): Promise<void> =>
      new Promise((resolve) => {
        client.clock.setTimer(700, () => {
          handled++
          resolve()
        })
      })
    const running = consumer.run(handler, { concurrency: 2, order: "partition" })
    await client.clock.advance(300)
    consumer.pause([1])
    await client.clock.advance(20_000)
    assert.deepEqual([overdue, client.groups.membership.left], [[], false])
    consumer.resume()
    await client.clock.advance(20_000)
    assert.deepEqual([overdue.length, handled], [0, 8])
    await consumer.shutdown()
    await running
    assert.equal(client.clock.timers, 0)
  })

  test("time in which the process was stopped is nobody's fault", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { handlerTimeoutMs: 10_000 })
    const told = noted(consumer)
    await take(consumer, 1)
    await client.clock.advance(3000)
    // One timer fires an hour late.
    const jump = client.clock.monotonicMs.bind(client.clock)
    client.clock.monotonicMs = () => jump() + 3_600_000
    await client.clock.advance(2000)
    assert.deepEqual(told, ["assigned 0"])
    await consumer.shutdown()
  })
})

describe("a membership that fails", () => {
  test("in a way that may pass is joined again after a rest; until then nothing is read", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { pollingRetryIntervalMs: 500 })
    const told = noted(consumer)
    await take(consumer, 2)
    client.groups.failures.push(new ConnectionError("still no server", { outcome: "rejected" }))
    client.groups.membership.tell(new ConnectionError("no server", { outcome: "rejected" }))
    await client.settle()
    const waiting = consumer.next()
    await client.clock.advance(499)
    assert.deepEqual(told, ["assigned 0", "lost 0"])
    await client.clock.advance(501)
    assert.equal(client.groups.joins.length, 2)
    client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
    assert.equal(textOf((await waiting).value as Message), "0", "nothing was stored before")
    await consumer.shutdown()
  })

  test("because the topic is gone is told once; who reads on looks for the topic again", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { pollingRetryIntervalMs: 500 })
    await take(consumer, 2)
    client.groups.membership.tell(new NotFoundError("topic s/t is gone"))
    await client.settle()
    await assert.rejects(consumer.next(), NotFoundError)
    await client.clock.advance(60_000)
    assert.equal(client.groups.joins.length, 1, "nobody asked")
    const waiting = consumer.next()
    await client.clock.advance(500)
    assert.equal(client.groups.joins.length, 2)
    client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
    assert.equal(textOf((await waiting).value as Message), "0")
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("because the topic is gone is joined again with onMissing wait, and nobody is told", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { onMissing: "wait", pollingRetryIntervalMs: 500 })
    const messages: Message[] = []
    const reading = (async () => {
      for await (const message of consumer) messages.push(message)
    })()
    await client.settle()
    client.groups.failures.push(new NotFoundError("topic s/t is gone"), new NotFoundError("topic s/t is gone"))
    client.groups.membership.tell(new NotFoundError("topic s/t is gone"))
    await client.settle()
    client.put(10, 11)
    await client.clock.advance(1500)
    client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
    await client.settle()
    assert.equal(messages.length, 11)
    await consumer.shutdown()
    await reading
  })

  test("for good ends every read", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    const told = noted(consumer)
    client.groups.membership.tell(new FencedError("another member has this name"))
    await client.settle()
    assert.deepEqual(told, ["assigned 0", "lost 0"])
    await assert.rejects(consumer.next(), FencedError)
    await assert.rejects(consumer.next(), FencedError)
    await client.clock.advance(60_000)
    assert.equal(client.groups.joins.length, 1)
    await consumer.shutdown()
  })

  test("while the consumer is shut down is left alone, and so is a join that is under way", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { pollingRetryIntervalMs: 500 })
    client.groups.membership.tell(new ConnectionError("no server", { outcome: "rejected" }))
    await client.settle()
    const waiting = consumer.next()
    await client.clock.advance(500)
    assert.equal(client.groups.joins.length, 2)
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.clock.timers, 0)
    assert.equal(client.owned.size, 0)
  })
})

test("an assignment of the same partition under a new claim reads on from what is stored", async () => {
  const client = filled(1, 10)
  const consumer = await open(client, [0])
  await take(consumer, 5)
  client.groups.membership.tell({ lost: [client.claim(0, "first 0")] })
  client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
  await client.settle()
  assert.deepEqual(textsOf(await take(consumer, 2)), ["0", "1"])
  await consumer.shutdown()
})

describe("the membership", () => {
  test("that fails for good fails every read, and stores nothing more", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    const messages = await take(consumer, 3)
    client.groups.membership.tell(new FencedError("another member has this name"))
    await client.settle()
    await assert.rejects(consumer.nextWithin(10), FencedError)
    await assert.rejects(consumer.next(), FencedError)
    await assert.rejects(consumer.commit(messages[0]), NotAssignedError)
    await consumer.shutdown()
    assert.equal(client.offsets.history.length, 0)
  })

  test("is left behind the last store", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    await take(consumer, 3)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    const ended = consumer.shutdown()
    await client.settle()
    assert.equal(client.groups.membership.left, false)
    store.resolve()
    await ended
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.groupNext("g"), 3n)
  })
})
