import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, InvalidError, NotAssignedError, NotFoundError, UnsupportedError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, fakeManifest, take, textOf, textsOf } from "../consumer/fake-session.test-support.ts"
import type { Message } from "../record/message.ts"
import { openGroupConsumer } from "./group-consumer.ts"

const group = { kind: "group", name: "g" } as const

/** Opens a member that is given these partitions first. */
async function open(
  client: FakeClient,
  partitions: readonly number[],
  options?: GroupConsumerOptions,
): Promise<Consumer> {
  client.groups.membership.tell({
    assigned: partitions.map((partition) => client.claim(partition, `first ${partition}`)),
  })
  return openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)
}

const filled = (partitions: number, records: number): FakeClient => {
  const client = new FakeClient({ partitions })
  for (let partition = 0; partition < partitions; partition++) client.put(0, records, partition)
  return client
}

describe("opening", () => {
  test("creates the group, joins with the timeouts, and may find the group there", async () => {
    const client = filled(1, 1)
    client.groups.created.add("g")
    const consumer = await open(client, [0], { memberId: "m1", sessionTimeoutMs: 6000, rebalanceTimeoutMs: 20_000 })
    assert.deepEqual(client.groups.joins, [
      {
        group: "g",
        topics: [client.topic],
        options: { memberId: "m1", sessionTimeoutMs: 6000, rebalanceTimeoutMs: 20_000 },
      },
    ])
    await consumer.shutdown()
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.owned.size, 0)
  })

  test("that is overtaken by the client's close is refused, and hangs nobody", async () => {
    const client = filled(1, 1)
    const answer = Promise.withResolvers<void>()
    client.offsets.beforeLoad = () => answer.promise
    const opening = open(client, [0])
    const refusal = assert.rejects(opening, ClosedError)
    await client.settle()
    assert.equal(client.owned.size, 1)
    await Promise.all([...client.owned].map((owned) => owned.shutdown()))
    await refusal
    answer.resolve()
    await client.settle()
    assert.equal(client.groups.membership.left, true)
  })

  test("without createGroup, a group that is missing is NotFoundError", async () => {
    await assert.rejects(open(filled(1, 1), [0], { createGroup: false }), NotFoundError)
  })

  test("without autoJoinGroup is refused with the reason", async () => {
    await assert.rejects(open(filled(1, 1), [0], { autoJoinGroup: false }), /fenced by its membership/)
  })

  test("is refused where the backend has no groups, with what to use instead", async () => {
    const groups = { supported: false, reason: "it has none", instead: "Use consumer()." } as const
    const client = new FakeClient({ manifest: { ...fakeManifest, groups } })
    await assert.rejects(
      open(client, []),
      (error) => error instanceof UnsupportedError && /it has none. Use consumer/.test(error.message),
    )
  })

  test("settles only when the first positions are fixed, so that nothing published after is missed (A-14)", async () => {
    const client = new FakeClient()
    const positions = Promise.withResolvers<void>()
    client.log.beforeLocate = () => positions.promise
    let settled = false
    const opening = open(client, [0], { startAt: { kind: "last" } }).then((consumer) => {
      settled = true
      return consumer
    })
    await client.settle()
    assert.equal(settled, false)
    positions.resolve()
    const consumer = await opening
    client.put(0, 5)
    assert.deepEqual(textsOf(await take(consumer, 5)), ["0", "1", "2", "3", "4"])
    await consumer.shutdown()
  })

  test("a new group gets what was published right after the promise, by default too (A-14)", async () => {
    const client = new FakeClient()
    const consumer = await open(client, [0])
    client.put(0, 5)
    assert.equal((await take(consumer, 5)).length, 5)
    await consumer.shutdown()
  })

  test("a listener is told what is assigned already, and then what comes", async () => {
    const client = filled(3, 1)
    const consumer = await open(client, [0, 2])
    const assigned: number[][] = []
    using _listener = consumer.on({ assigned: (places) => assigned.push(places.map(({ partition }) => partition)) })
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    await client.settle()
    assert.deepEqual(assigned, [[0, 2], [1]])
    await consumer.shutdown()
  })

  test("the first listener is told of records that were passed over before it came, and only the first", async () => {
    const client = filled(1, 10)
    client.log.trim(client.place(0), 4n)
    client.storeNext(group, 1n, 0)
    const consumer = await open(client, [0])
    await client.settle()
    const told: string[] = []
    const note = (who: string) => ({
      skipped: ({ from, to, count }: { from: bigint; to: bigint; count: bigint }) =>
        void told.push(`${who}: ${count} from ${from} to ${to}`),
    })
    consumer.on({ assigned: () => {} })
    consumer.on(note("first"))
    consumer.on(note("second"))
    assert.deepEqual(told, ["first: 3 from 1 to 4"])
    await consumer.shutdown()
  })

  test("an empty first assignment settles, and reading waits", async () => {
    const client = filled(1, 3)
    const consumer = await open(client, [])
    const waiting = consumer.next()
    await client.clock.advance(10_000)
    client.groups.membership.tell({ assigned: [client.claim(0)] })
    assert.equal(textOf((await waiting).value as Message), "0")
    await consumer.shutdown()
  })

  test("a start that fails fails the call, and leaves nothing behind", async () => {
    const client = filled(1, 3)
    client.log.partitions.clear()
    await assert.rejects(open(client, [0]), NotFoundError)
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.owned.size, 0)
    assert.equal(client.clock.timers, 0)
  })

  test("options that cannot be are refused by name", async () => {
    const client = filled(1, 1)
    await assert.rejects(open(client, [0], { batchLenght: 5 } as never), /unknown option "batchLenght".*batchLength/)
    await assert.rejects(open(client, [0], { memberId: "" }), InvalidError)
    await assert.rejects(
      openGroupConsumer(client.context, { topic: client.topic, group: "a\u0000b" }),
      /control character/,
    )
  })
})

describe("several partitions", () => {
  test("are merged fairly", async () => {
    const client = filled(4, 100)
    const consumer = await open(client, [0, 1, 2, 3], { batchLength: 10 })
    const messages = await take(consumer, 80)
    const counts = [0, 0, 0, 0]
    for (const { position } of messages) counts[position.partition] = (counts[position.partition] ?? 0) + 1
    assert.deepEqual(counts, [20, 20, 20, 20])
    await consumer.shutdown()
  })

  test("keep the order within each, and each stores its own progress", async () => {
    const client = filled(3, 50)
    const consumer = await open(client, [0, 1, 2], { batchLength: 7 })
    const messages = await take(consumer, 150)
    for (let partition = 0; partition < 3; partition++) {
      const own = messages.filter(({ position }) => position.partition === partition)
      assert.deepEqual(
        textsOf(own),
        Array.from({ length: 50 }, (_, n) => String(n)),
      )
    }
    await consumer.shutdown()
    for (let partition = 0; partition < 3; partition++) assert.equal(client.groupNext("g", partition), 50n)
  })

  test("one that fails is told once in its place, and the others go on", async () => {
    const client = filled(2, 10)
    client.log.partitions.delete("s\nt\n1")
    const consumer = await open(client, [0], { batchLength: 4 })
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    await client.settle()
    const seen: string[] = []
    let failures = 0
    while (seen.length < 10) {
      try {
        seen.push(textOf(await consumer.nextWithin(100)))
      } catch (error) {
        assert.ok(error instanceof NotFoundError)
        failures++
      }
    }
    assert.equal(failures, 1)
    await consumer.shutdown()
  })

  test("storeOffset needs the partition's number, and one that is assigned", async () => {
    const client = filled(2, 5)
    const consumer = await open(client, [1])
    await assert.rejects(consumer.storeOffset(2n), InvalidError)
    await assert.rejects(consumer.storeOffset(2n, 0), NotAssignedError)
    await consumer.storeOffset(2n, 1)
    assert.equal(client.groupNext("g", 1), 3n)
    assert.equal(client.offsets.history[0]?.claim?.token, "first 1")
    await consumer.shutdown()
  })
})

describe("a partition that is revoked", () => {
  test("gives nothing more; its progress is stored, then it is released; later commits are refused (A-07)", async () => {
    const client = filled(1, 100)
    const consumer = await open(client, [0], { batchLength: 100, commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 50)
    await consumer.commit(messages[39])
    const revoked: unknown[] = []
    consumer.on({ revoked: (partitions) => revoked.push(...partitions) })
    const claim = client.claim(0, "first 0")
    client.groups.membership.tell({ revoked: [claim] })
    await client.clock.advance(1000)
    assert.deepEqual(client.groups.membership.released, [claim])
    assert.deepEqual(revoked, [client.place(0)])
    await assert.rejects(consumer.commit(messages[49]), NotAssignedError)
    const waiting = consumer.next()
    await client.clock.advance(1000)
    assert.equal(client.groupNext("g"), 40n, "the other member begins at the last valid commit")
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
    assert.equal(client.groupNext("g"), 40n)
  })

  test("waits a moment for the message that is being handled, so that it does not come twice", async () => {
    const client = filled(1, 100)
    const consumer = await open(client, [0], { commitPolicy: { kind: "disabled" } })
    const [message] = await take(consumer, 1)
    client.groups.membership.tell({ revoked: [client.claim(0, "first 0")] })
    await client.clock.advance(400)
    assert.equal(client.groups.membership.released.length, 0)
    await consumer.commit(message)
    await client.settle()
    assert.equal(client.groups.membership.released.length, 1)
    assert.equal(client.groupNext("g"), 1n)
    await consumer.shutdown()
  })

  test("with an automatic policy stores the handled prefix and not the message in hand", async () => {
    const client = filled(1, 100)
    const consumer = await open(client, [0])
    await take(consumer, 30)
    client.groups.membership.tell({ revoked: [client.claim(0, "first 0")] })
    await client.clock.advance(1000)
    assert.equal(client.groupNext("g"), 29n)
    assert.equal(client.groups.membership.released.length, 1)
    await consumer.shutdown()
    assert.equal(client.groupNext("g"), 29n)
  })

  test("when the next message is asked for, is released at once", async () => {
    const client = filled(2, 100)
    const consumer = await open(client, [0, 1], { batchLength: 10 })
    const [message] = await take(consumer, 1)
    const partition = message?.position.partition as number
    client.groups.membership.tell({ revoked: [client.claim(partition, `first ${partition}`)] })
    await client.settle()
    const [next] = await take(consumer, 1)
    assert.equal(next?.position.partition, 1 - partition)
    await client.settle()
    assert.equal(client.groups.membership.released.length, 1)
    assert.equal(client.groupNext("g", partition), 1n)
    await consumer.shutdown()
  })

  test("may come back under another claim, and goes on where it stood", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    const old = await take(consumer, 3)
    client.groups.membership.tell({ revoked: [client.claim(0, "first 0")] })
    await client.clock.advance(1000)
    client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
    assert.deepEqual(textsOf(await take(consumer, 2)), ["2", "3"])
    await assert.rejects(consumer.commit(old[2]), NotAssignedError)
    await consumer.shutdown()
    assert.equal(client.offsets.history.at(-1)?.claim?.token, "second")
  })
})

describe("a partition that is lost", () => {
  test("is dropped at once: nothing is handed out or stored any more", async () => {
    const client = filled(1, 100)
    const consumer = await open(client, [0])
    const [message] = await take(consumer, 30)
    const lost: unknown[] = []
    consumer.on({ lost: (partitions) => lost.push(...partitions) })
    client.groups.membership.tell({ lost: [client.claim(0, "first 0")] })
    await client.settle()
    assert.deepEqual(lost, [client.place(0)])
    await assert.rejects(consumer.commit(message), NotAssignedError)
    const waiting = consumer.next()
    await client.clock.advance(1000)
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
    assert.equal(client.offsets.history.length, 0)
    assert.equal(client.groups.membership.released.length, 0)
  })

  test("a commit on its way is the store's to refuse", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { commitPolicy: { kind: "disabled" } })
    const [message] = await take(consumer, 1)
    client.offsets.void.add("first 0")
    await assert.rejects(consumer.commit(message), NotAssignedError)
    assert.equal(client.offsets.history.length, 0)
    await consumer.shutdown()
  })
})

describe("a partition that is lost while commits wait", () => {
  test("has them refused, and they never reach the store", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0], { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 3)
    const store = Promise.withResolvers<void>()
    client.offsets.gate = store.promise
    const first = consumer.commit(messages[0])
    await client.settle()
    const second = assert.rejects(consumer.commit(messages[2]), NotAssignedError)
    await client.settle()
    client.groups.membership.tell({ lost: [client.claim(0, "first 0")] })
    await second
    store.resolve()
    await first
    await client.settle()
    assert.deepEqual(
      client.offsets.history.map(({ offset }) => offset),
      [1n],
    )
    await consumer.shutdown()
  })
})

describe("a partition that is gained", () => {
  test("is not read before its position is known (A-06)", async () => {
    const client = filled(2, 10)
    client.storeNext(group, 10n, 1)
    const consumer = await open(client, [0])
    await take(consumer, 10)
    const answer = Promise.withResolvers<void>()
    client.offsets.beforeLoad = () => answer.promise
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    const waiting = consumer.next()
    await client.clock.advance(1000)
    for (const reader of client.log.readers) {
      for (const positions of reader.sets) assert.ok(positions.every(({ partition }) => partition !== 1))
    }
    answer.resolve()
    await client.settle()
    client.put(10, 11, 1)
    const message = (await waiting).value as Message
    assert.deepEqual(message.position, { partition: 1, offset: 10n }, "nothing that was committed comes again")
    await consumer.shutdown()
  })

  test("later than the start begins at its first record, whatever startAt says", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0], { startAt: { kind: "last" } })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["9"])
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["0"])
    await consumer.shutdown()
  })

  test("and lost again while its position is looked up, is forgotten", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0])
    await take(consumer, 10)
    const answer = Promise.withResolvers<void>()
    client.offsets.beforeLoad = () => answer.promise
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    await client.settle()
    client.groups.membership.tell({ lost: [client.claim(1)] })
    await client.settle()
    answer.resolve()
    const waiting = consumer.next()
    await client.clock.advance(1000)
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
  })
})
