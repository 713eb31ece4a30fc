/** What happens between the moment when the group wants a partition back and the one when it has it. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, NotAssignedError, TimeoutError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take } from "../consumer/fake-session.test-support.ts"
import type { LogConsumer } from "../consumer/log-consumer.ts"
import type { Message } from "../record/message.ts"
import { openGroupConsumer } from "./group-consumer.ts"

async function open(
  client: FakeClient,
  partitions: readonly number[],
  options?: GroupConsumerOptions,
): Promise<LogConsumer> {
  client.groups.membership.tell({ assigned: partitions.map((one) => client.claim(one, `first ${one}`)) })
  return (await openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)) as LogConsumer
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

const revoke = (client: FakeClient, partition: number, deadlineMs = 10_000): void =>
  client.groups.membership.tell({ revoked: [client.claim(partition, `first ${partition}`)], deadlineMs })

const released = (client: FakeClient): number[] => client.groups.membership.released.map(({ partition }) => partition)

/** Reads until the consumer has nothing more. */
async function rest(client: FakeClient, consumer: Consumer): Promise<Message[]> {
  const messages: Message[] = []
  const reading = (async () => {
    for await (const message of consumer) messages.push(message)
  })()
  await client.clock.advance(1000)
  await consumer.shutdown()
  await reading
  return messages
}

describe("the event revoking", () => {
  test("comes before anything is given back, is awaited, and commits made in it count", async () => {
    const client = filled(1, 100)
    const consumer = await open(client, [0], { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 10)
    const flushed = Promise.withResolvers<void>()
    const told: string[] = []
    consumer.on({
      async revoking({ partitions, deadlineMs }) {
        told.push(`revoking ${partitions.map(({ partition }) => partition)} within ${deadlineMs}`)
        await flushed.promise
        await consumer.commit(messages[6])
      },
      revoked: () => void told.push("revoked"),
    })
    revoke(client, 0)
    await client.clock.advance(5000)
    assert.deepEqual(told, ["revoking 0 within 7500"])
    assert.deepEqual(released(client), [])
    const reading = assert.rejects(consumer.nextWithin(100), TimeoutError, "nothing more of it is handed out")
    await client.clock.advance(100)
    await reading
    flushed.resolve()
    await client.settle()
    assert.deepEqual(told, ["revoking 0 within 7500", "revoked"])
    assert.deepEqual(released(client), [0])
    assert.equal(client.groupNext("g"), 7n)
    await assert.rejects(consumer.commit(messages[9]), NotAssignedError)
    assert.deepEqual(await rest(client, consumer), [], "what was read ahead is not handed out any more")
    assert.equal(client.clock.timers, 0)
  })

  test("that is never answered holds the partition no longer than its deadline", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    consumer.on({ revoking: () => new Promise(() => {}) })
    revoke(client, 0, 4000)
    await client.clock.advance(2999)
    assert.deepEqual(released(client), [])
    await client.clock.advance(1)
    assert.deepEqual(released(client), [0])
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("whose listener fails is told to the next read, and hinders nothing", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    consumer.on({ revoking: () => Promise.reject(new Error("no disk")) })
    revoke(client, 0)
    await client.settle()
    assert.deepEqual(released(client), [0])
    await assert.rejects(consumer.next(), /listener for "revoking" failed: Error: no disk/)
    await consumer.shutdown()
  })
})

describe("messages in hand", () => {
  test("get revokeTimeoutMs with finish", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { revokeTimeoutMs: 5000, commitPolicy: { kind: "disabled" } })
    const [message] = await take(consumer, 1)
    revoke(client, 0)
    await client.clock.advance(4999)
    assert.deepEqual(released(client), [])
    await consumer.commit(message)
    await client.settle()
    assert.deepEqual(released(client), [0])
    assert.equal(client.groupNext("g"), 1n)
    await consumer.shutdown()
  })

  test("are cut off at once with fence: what was handled is stored, what was not is refused", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { onRevoke: "fence" })
    const messages = await take(consumer, 5)
    revoke(client, 0)
    await client.settle()
    assert.deepEqual(released(client), [0])
    assert.equal(client.groupNext("g"), 4n)
    await assert.rejects(consumer.commit(messages[4]), NotAssignedError)
    assert.equal(client.groupNext("g"), 4n)
    await consumer.shutdown()
  })

  test("of a feed get all the time there is, and free the partition as soon as the last is handled", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    await client.settle()
    const feed = consumer.feed(feedUser)
    const messages = [feed.take(), feed.take(), feed.take()] as Message[]
    const lane = feed.lane
    assert.ok(lane !== undefined)
    feed.handled(lane, 2n)
    feed.handled(lane, 0n)
    revoke(client, 0, 30_000)
    await client.clock.advance(20_000)
    assert.deepEqual(released(client), [])
    assert.equal(feed.take(), undefined, "no more of it is taken")
    feed.handled(lane, messages[1]?.position.offset ?? -1n)
    await client.settle()
    assert.deepEqual(released(client), [0])
    assert.equal(client.groupNext("g"), 3n)
    await consumer.shutdown()
  })
})

describe("a hand-over", () => {
  test("that the shutdown overtakes waits for nothing any more, and leaves nothing behind", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { revokeTimeoutMs: 20_000 })
    await take(consumer, 3)
    consumer.on({ revoking: () => new Promise(() => {}) })
    revoke(client, 0, 30_000)
    await client.settle()
    await consumer.shutdown()
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.groupNext("g"), 3n, "the last message counts at a shutdown")
    assert.equal(client.clock.timers, 0)
  })

  test("of a partition that is lost on the way releases nothing of it, and tells of it once", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0, 1])
    await take(consumer, 20)
    const told: string[] = []
    consumer.on({
      revoked: (places) => void told.push(`revoked ${places.map(({ partition }) => partition)}`),
      lost: (places) => void told.push(`lost ${places.map(({ partition }) => partition)}`),
    })
    const claims = [0, 1].map((partition) => client.claim(partition, `first ${partition}`))
    client.groups.membership.tell({ revoked: claims })
    await client.settle()
    client.groups.membership.tell({ lost: [client.claim(0, "first 0")] })
    await client.clock.advance(1000)
    assert.deepEqual(told, ["lost 0", "revoked 1"])
    assert.deepEqual(released(client), [1])
    await consumer.shutdown()
  })

  test("does not wait for the stores of partitions that stay", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0, 1], { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 20)
    const mine = messages.filter(({ position }) => position.partition === 1)
    // Partition 1 is committed again and again by two, so that some store is always under way or waiting.
    let busy = true
    Object.defineProperty(client.offsets, "gate", { get: () => new Promise((resolve) => setImmediate(resolve)) })
    const commit = async (): Promise<void> => {
      for (let index = 0; busy; index++) await consumer.commit(mine[index % mine.length])
    }
    const committing = Promise.all([commit(), commit()])
    try {
      revoke(client, 0)
      await client.clock.advance(1500)
      assert.deepEqual(released(client), [0])
    } finally {
      busy = false
      await committing
    }
    await consumer.shutdown()
  })

  test("whose store does not succeed ends at its deadline without it", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    await take(consumer, 5)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    revoke(client, 0, 8000)
    await client.clock.advance(5999)
    assert.deepEqual(released(client), [])
    await client.clock.advance(1)
    assert.deepEqual(released(client), [0])
    store.resolve()
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("leaves the partitions that stay as they are: their position, their read-ahead and what is in hand", async () => {
    const client = filled(2, 50)
    const consumer = await open(client, [0, 1], { batchLength: 5 })
    const before = await take(consumer, 12)
    const last = before.at(-1)?.position.partition as number
    const other = 1 - last
    const polls = client.log.polls
    revoke(client, other)
    await client.settle()
    assert.deepEqual(released(client), [other])
    const after = await take(consumer, 50 - before.filter(({ position }) => position.partition === last).length)
    const offsets = [...before, ...after].filter(({ position }) => position.partition === last)
    assert.deepEqual(
      offsets.map(({ position }) => position.offset),
      Array.from({ length: 50 }, (_, offset) => BigInt(offset)),
      "none twice, none left out",
    )
    assert.equal(client.log.polls, polls, "nothing was read again")
    await consumer.shutdown()
    assert.equal(client.groupNext("g", last), 50n)
  })
})

describe("a commit of the caller's own that fails while its partition is handed over", () => {
  test("takes nothing along: what it was for is stored before the partition goes", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { commitPolicy: { kind: "interval", intervalMs: 60_000 } })
    const [message] = await take(consumer, 1)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    client.offsets.failures.push(new ConnectionError("no server", { outcome: "rejected" }))
    const committing = assert.rejects(consumer.commit(message as Message), ConnectionError)
    revoke(client, 0)
    await client.settle()
    client.offsets.gate = undefined
    store.resolve()
    await committing
    await client.clock.advance(1000)
    assert.deepEqual(released(client), [0])
    assert.equal(client.offsets.history.at(-1)?.offset, 1n)
    await consumer.shutdown()
  })
})
