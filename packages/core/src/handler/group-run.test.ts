/** `consumer.run` in a group, and over what cannot be read. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CorruptionError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import { FakeClient, textOf } from "../consumer/fake-session.test-support.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { open, running } from "./running-consumer.test-support.ts"

describe("a batch that cannot be read", () => {
  const damaged = (): CorruptionError =>
    new CorruptionError("offset 3 of partition 0 is damaged", {
      context: { stream: "s", topic: "t", partition: 0, offset: 3n, nextOffset: 5n },
    })

  /** Offsets 0 to 2 can be read, 3 and 4 cannot, 5 and 6 can. */
  async function opened(client: FakeClient): Promise<Consumer> {
    client.put(0, 3)
    const consumer = open(client, { commitPolicy: { kind: "each" }, maxWaitMs: 10 })
    return consumer
  }

  for (const onFailure of ["skip", "stop"] as const) {
    test(`${onFailure}: what came before it is handled first (A-20)`, async () => {
      const client = new FakeClient()
      const consumer = await opened(client)
      const seen: string[] = []
      const work = Promise.withResolvers<void>()
      const state = running(
        consumer,
        async (message) => {
          seen.push(textOf(message))
          if (textOf(message) === "2") await work.promise
        },
        { onFailure },
      )
      await client.clock.advance(20)
      const found = client.log.find(client.place())
      if (found !== undefined) found.failure = damaged()
      client.put(3, 7)
      await client.clock.advance(100)
      work.resolve()
      await client.clock.advance(100)
      if (onFailure === "stop") {
        assert.ok(state.done instanceof CorruptionError, String(state.done))
        await consumer.seek(0, "skip")
        running(consumer, (message) => void seen.push(textOf(message)))
        await client.clock.advance(100)
      }
      assert.deepEqual(seen, ["0", "1", "2", "5", "6"])
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 7n)
    })
  }
})

describe("in a group", () => {
  const join = async (client: FakeClient): Promise<Consumer> => {
    client.groups.membership.tell({ assigned: [client.claim(0), client.claim(1)] })
    return await openGroupConsumer(
      client.context,
      { topic: client.topic, group: "g" },
      { commitPolicy: { kind: "each" } },
    )
  }

  test("a partition that is lost takes its handlers' work with it; the other goes on", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 2, 0)
    client.put(10, 12, 1)
    const consumer = await join(client)
    const work = Promise.withResolvers<void>()
    const signals: AbortSignal[] = []
    running(
      consumer,
      async (message, context) => {
        if (message.position.partition === 1) return
        signals.push(context.signal)
        await work.promise
      },
      { concurrency: 4 },
    )
    await client.clock.advance(10)
    client.groups.membership.tell({ lost: [client.claim(0)] })
    await client.clock.advance(10)
    assert.deepEqual(
      signals.map((signal) => signal.aborted),
      [true],
    )
    work.resolve()
    await client.clock.advance(10)
    assert.equal(client.groupNext("g", 0), undefined)
    assert.equal(client.groupNext("g", 1), 2n)
    assert.equal(signals.length, 1, "nothing more of it starts")
    await consumer.shutdown()
  })

  test("a handler that takes longer than handlerTimeoutMs loses its partition: its signal fires, and what it does counts no more (A-27)", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 2, 0)
    client.groups.membership.tell({ assigned: [client.claim(0), client.claim(1)] })
    const consumer = await openGroupConsumer(
      client.context,
      { topic: client.topic, group: "g" },
      { commitPolicy: { kind: "each" }, handlerTimeoutMs: 1000 },
    )
    const overdue: unknown[] = []
    consumer.on({ handlerTimeout: (event) => void overdue.push(event) })
    const work = Promise.withResolvers<void>()
    const signals: AbortSignal[] = []
    const state = running(consumer, async (_, context) => {
      signals.push(context.signal)
      await work.promise
    })
    await client.clock.advance(3000)
    assert.equal(overdue.length, 1)
    assert.equal(signals[0]?.aborted, true)
    work.resolve()
    await client.clock.advance(10)
    assert.equal(client.groupNext("g", 0), undefined)
    assert.equal(state.ended, false)
    await consumer.shutdown()
  })

  test("a partition that is handed over waits for what runs, and stores it", async () => {
    const client = new FakeClient({ partitions: 2 })
    client.put(0, 40, 0)
    const consumer = await join(client)
    const work = Promise.withResolvers<void>()
    let started = 0
    running(
      consumer,
      async () => {
        started++
        await work.promise
      },
      { concurrency: 4 },
    )
    await client.clock.advance(10)
    client.groups.membership.tell({ revoked: [client.claim(0)] })
    await client.clock.advance(100)
    assert.deepEqual(client.groups.membership.released, [])
    work.resolve()
    await client.clock.advance(1)
    assert.equal(client.groups.membership.released.length, 1, "it does not wait for what was taken and not begun")
    assert.equal(client.groupNext("g", 0), 1n)
    assert.equal(started, 1)
    await consumer.shutdown()
  })
})
