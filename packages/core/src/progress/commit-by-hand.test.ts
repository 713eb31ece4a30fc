import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { HistoryChangedError, InvalidError, MillraceError, NotAssignedError, StorageError } from "@millrace/contract"
import fc from "fast-check"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, take, textsOf } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import type { Message } from "../record/message.ts"
import type { CommitPolicy } from "./commit-policy.ts"

function open(client: FakeClient, commitPolicy: CommitPolicy, options?: ConsumerOptions): Consumer {
  const source = { topic: client.topic, name: "worker", partition: 0 }
  return openConsumer(client.context, source, { pollingRetryIntervalMs: 500, ...options, commitPolicy })
}

function filled(records: number): FakeClient {
  const client = new FakeClient()
  client.put(0, records)
  return client
}

/** What was stored, in order. */
function stores(client: FakeClient): bigint[] {
  return client.offsets.history.map(({ offset }) => offset)
}

describe("mark", () => {
  test("under disabled is stored in the background, as far as what is marked has no gap", async () => {
    await fc.assert(
      fc.asyncProperty(fc.shuffledSubarray([0, 1, 2, 3, 4, 5, 6, 7], { minLength: 1 }), async (order) => {
        const client = filled(8)
        const consumer = open(client, { kind: "disabled" })
        const messages = await take(consumer, 8)
        const marked = new Set<number>()
        for (const index of order) {
          consumer.mark(messages[index] as Message)
          marked.add(index)
          await client.settle()
          let prefix = 0
          while (marked.has(prefix)) prefix++
          assert.equal(client.storedNext("worker") ?? 0n, BigInt(prefix))
        }
        await consumer.shutdown()
        const history = stores(client)
        assert.deepEqual(
          history,
          [...new Set(history)].sort((a, b) => Number(a - b)),
          "never back, never twice",
        )
      }),
      { numRuns: 50 },
    )
  })

  test("goes on behind a commit", async () => {
    const client = filled(8)
    const consumer = open(client, { kind: "disabled" })
    const messages = await take(consumer, 8)
    consumer.mark(messages[4] as Message)
    await consumer.commit(messages[3])
    await client.settle()
    assert.equal(client.storedNext("worker"), 5n, "3 by the commit, 4 by the mark")
    await consumer.shutdown()
  })

  test("whose store fails for good is told, and goes again at the end", async () => {
    const client = filled(8)
    const consumer = open(client, { kind: "disabled" })
    const [message] = await take(consumer, 3)
    client.offsets.failures.push(new StorageError("broken"))
    consumer.mark(message as Message)
    await client.settle()
    await assert.rejects(consumer.nextWithin(10), StorageError)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 1n)
  })

  test("of what was not handed out here is refused", async () => {
    const client = filled(8)
    const first = open(client, { kind: "disabled" })
    const messages = await take(first, 4)
    await first.shutdown()
    const consumer = open(client, { kind: "disabled" })
    assert.throws(() => consumer.mark(messages[0] as Message), /was not handed out/)
    await take(consumer, 2)
    assert.throws(() => consumer.mark(messages[3] as Message), /offset 3 of partition 0 was not handed out/)
    consumer.mark(messages[0] as Message)
    await client.settle()
    assert.equal(client.storedNext("worker"), 1n, "a checkpoint knows its partition, not its consumer")
    const unnamed = openConsumer(client.context, { topic: client.topic, name: undefined, partition: 0 })
    assert.throws(() => unnamed.mark(messages[0] as Message), /mark needs a consumer name/)
    await consumer.shutdown()
    assert.throws(() => consumer.mark(messages[0] as Message), /shut down/)
    await unnamed.shutdown()
  })
})

describe("a checkpoint", () => {
  const join = async (client: FakeClient, token: string): Promise<Consumer> => {
    client.groups.membership.tell({ assigned: [client.claim(0, token)] })
    return openGroupConsumer(
      client.context,
      { topic: client.topic, group: "g" },
      { commitPolicy: { kind: "disabled" } },
    )
  }

  test("that is committed before the first read does not move progress back", async () => {
    const client = filled(9)
    const before = open(client, { kind: "disabled" })
    const messages = await take(before, 6)
    const checkpoint = (messages[2] as Message).checkpoint()
    await before.shutdown()
    const consumer = open(client, { kind: "disabled" })
    await consumer.commit(checkpoint)
    assert.equal(client.storedNext("worker"), 3n)
    await consumer.commit(messages[4])
    await consumer.commit(checkpoint)
    assert.equal(client.storedNext("worker"), 5n)
    await consumer.shutdown()
  })

  test("of a partition that was lost is refused, also when the partition has come back", async () => {
    const client = filled(5)
    const consumer = await join(client, "one")
    const checkpoint = (await take(consumer, 2))[1]?.checkpoint()
    assert.ok(checkpoint !== undefined)
    client.groups.membership.tell({ lost: [client.claim(0, "one")] })
    await client.settle()
    const refused = (error: unknown): boolean => error instanceof NotAssignedError && error.context.offset === 1n
    await assert.rejects(consumer.commit(checkpoint), refused)
    assert.throws(() => consumer.mark(checkpoint), refused)
    client.groups.membership.tell({ assigned: [client.claim(0, "two")] })
    assert.deepEqual(textsOf(await take(consumer, 2)), ["0", "1"])
    await assert.rejects(consumer.commit(checkpoint), refused)
    assert.throws(() => consumer.mark(checkpoint), refused)
    assert.equal(client.offsets.history.length, 0)
    await consumer.shutdown()
  })

  test("of a topic that was recreated is refused, whoever asks", async () => {
    const client = filled(5)
    const consumer = open(client, { kind: "disabled" })
    const checkpoint = (await take(consumer, 2))[1]?.checkpoint()
    assert.ok(checkpoint !== undefined)
    client.log.purge(client.place(), "b")
    client.put(100, 105)
    await client.settle()
    await take(consumer, 3)
    await assert.rejects(consumer.commit(checkpoint), HistoryChangedError)
    assert.throws(() => consumer.mark(checkpoint), HistoryChangedError)
    assert.equal(client.offsets.history.length, 0)
    await consumer.shutdown()
  })

  test("of a group is not a named consumer's, and the other way round", async () => {
    const client = filled(5)
    const member = await join(client, "one")
    const named = open(client, { kind: "disabled" })
    const [ofGroup] = await take(member, 1)
    const [ofConsumer] = await take(named, 1)
    assert.ok(ofGroup !== undefined && ofConsumer !== undefined)
    await assert.rejects(
      named.commit(ofGroup),
      (error) => error instanceof InvalidError && /member of a group/.test(error.message),
    )
    assert.throws(() => named.mark(ofGroup), InvalidError)
    await assert.rejects(member.commit(ofConsumer), NotAssignedError)
    assert.throws(() => member.mark(ofConsumer), NotAssignedError)
    await named.shutdown()
    const again = open(client, { kind: "disabled" })
    await assert.rejects(again.commit(ofGroup), InvalidError, "before it reads, too")
    await again.shutdown()
    await member.shutdown()
    assert.equal(client.offsets.history.length, 0)
  })
})

describe("a commit in a replay", () => {
  test("leaves the store where it is, and counts nothing behind the message as handled", async () => {
    const client = filled(9)
    const consumer = open(client, { kind: "disabled" })
    await take(consumer, 9)
    await consumer.commit()
    await consumer.seek(0, { kind: "first" })
    const messages = await take(consumer, 2)
    await consumer.commit(messages[1])
    assert.equal(client.storedNext("worker"), 9n)
    const failed = assert.rejects(
      consumer.run(({ position }) => {
        if (position.offset === 4n) throw new Error("boom")
      }),
    )
    await client.settle()
    await failed
    assert.deepEqual(textsOf(await take(consumer, 1)), ["4"], "what failed comes again")
    await consumer.shutdown()
  })
})

describe("what the backend refuses", () => {
  test("is told of the message that was to be committed", async () => {
    const client = filled(5)
    const consumer = open(client, { kind: "disabled" })
    const [, message] = await take(consumer, 2)
    for (const cause of [new HistoryChangedError("another"), new NotAssignedError("not yours")]) {
      client.offsets.failures.push(cause)
      await assert.rejects(consumer.commit(message), (error) => {
        assert.ok(error instanceof MillraceError)
        assert.equal(error.kind, cause.kind)
        assert.equal(error.context.offset, 1n)
        assert.equal(error.cause, cause)
        return true
      })
    }
    await consumer.shutdown()
  })
})

describe("an offset beyond the end", () => {
  test("is stored as it is said, and the next reader is out of range", async () => {
    const client = filled(3)
    const consumer = open(client, { kind: "polling" })
    await consumer.storeOffset(99n)
    assert.equal(client.storedNext("worker"), 100n)
    await consumer.shutdown()
    const again = open(client, { kind: "polling" })
    const skips: bigint[] = []
    again.on({ skipped: ({ from, to }) => skips.push(from, to) })
    assert.deepEqual(textsOf(await take(again, 1)), ["0"])
    assert.deepEqual(skips, [100n, 0n])
    await again.shutdown()
    assert.equal(client.storedNext("worker"), 1n)
  })
})

describe("two consumers with one name", () => {
  test("do not see each other: the last store wins, also when it is behind", async () => {
    const client = filled(10)
    const ahead = open(client, { kind: "disabled" })
    const behind = open(client, { kind: "disabled" })
    await take(ahead, 8)
    await take(behind, 3)
    await ahead.commit()
    await behind.commit()
    assert.equal(client.storedNext("worker"), 3n)
    await ahead.shutdown()
    await behind.shutdown()
    assert.equal(client.storedNext("worker"), 3n)
  })
})
