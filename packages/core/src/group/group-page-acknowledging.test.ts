/** Acknowledging what the reader of a group has handed out. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, HistoryChangedError, InvalidError, NotAssignedError, PermissionError } from "@millrace/contract"
import fc from "fast-check"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import type { Message } from "../record/message.ts"
import { filled, message, open, page, soon, texts } from "./group-page-reader.test-support.ts"

describe("an acknowledgement whose store fails", () => {
  test("says so; again, it settles only once it is stored", async () => {
    const client = filled(4)
    const reader = await open(client, { count: 2 })
    const one = await page(client, reader)
    client.offsets.failures.push(new PermissionError("no"), new PermissionError("still no"))
    await assert.rejects(soon(client, reader.ackPage(one)), PermissionError)
    assert.equal(client.groupNext("g"), undefined)
    await assert.rejects(soon(client, reader.ack(message(one, 0))), PermissionError)
    await soon(client, reader.ack(message(one, 0)))
    assert.equal(client.groupNext("g"), 2n)
    const stores = client.offsets.history.length
    await soon(client, reader.ackPage(one))
    assert.equal(client.offsets.history.length, stores, "what is stored is not stored again")
    await reader.shutdown()
  })
})

describe("acknowledgements that come too late", () => {
  test("of a partition that was lost are refused, and store nothing", async () => {
    const client = filled(4)
    const reader = await open(client, { count: 2 })
    const one = await page(client, reader)
    client.groups.membership.tell({ lost: [client.claim(0)] })
    await client.settle()
    await assert.rejects(reader.ackPage(one), NotAssignedError)
    assert.equal(reader.unacked, 0)
    assert.equal(client.offsets.history.length, 0)
    await reader.shutdown()
    await assert.rejects(reader.ack(message(one, 0)), ClosedError)
  })

  test("a partition that goes to another member waits for the pages in hand, and takes no more of it", async () => {
    const client = filled(6, 2)
    const reader = await open(client, { count: 2 })
    const one = await page(client, reader)
    const { partition } = one
    client.groups.membership.tell({ revoked: [client.claim(partition)], deadlineMs: 30_000 })
    await client.clock.advance(500)
    assert.equal(client.groups.membership.released.length, 0)
    await soon(client, reader.ackPage(one))
    await client.clock.advance(100)
    assert.equal(client.groups.membership.released.length, 1)
    assert.equal(client.groupNext("g", partition), 2n)
    for (let i = 0; i < 3; i++) assert.equal((await page(client, reader)).partition, 1 - partition)
    await reader.shutdown()
  })

  test("a partition that goes waits for no page that nobody has got", async () => {
    const client = filled(6)
    const reader = await open(client, { maxBytes: 2, revokeTimeoutMs: 20_000 })
    const one = await page(client, reader)
    assert.deepEqual(texts(one), ["0", "1"])
    client.groups.membership.tell({ revoked: [client.claim(0)], deadlineMs: 30_000 })
    await client.clock.advance(500)
    assert.equal(client.groups.membership.released.length, 0)
    await soon(client, reader.ackPage(one))
    await client.clock.advance(100)
    assert.equal(client.groups.membership.released.length, 1)
    assert.equal(client.groupNext("g"), 2n)
    assert.equal(await soon(client, reader.poll()), undefined, "the rest is the next member's")
    await reader.shutdown()
  })

  test("of an earlier history are refused", async () => {
    const client = filled(4)
    const reader = await open(client, { count: 2 })
    const one = await page(client, reader)
    client.log.purge(client.place(), "b")
    client.put(0, 2)
    await client.clock.advance(100)
    const next = await page(client, reader)
    assert.deepEqual(texts(next), ["0", "1"])
    await assert.rejects(reader.ackPage(one), HistoryChangedError)
    await soon(client, reader.ackPage(next))
    assert.equal(client.groupNext("g"), 2n)
    await reader.shutdown()
  })

  test("of what was handed out before a seek are refused, and those behind it count for themselves", async () => {
    const client = filled(6)
    const reader = await open(client, { count: 3 })
    const [one, other] = [await page(client, reader), await page(client, reader)]
    await reader.seek(0, { kind: "offset", value: 2n })
    const again = await page(client, reader)
    assert.deepEqual(texts(again), ["2", "3", "4"])
    await assert.rejects(reader.ack(message(other, 2)), InvalidError)
    await soon(client, reader.ack(message(again, 1)))
    assert.equal(client.groupNext("g"), undefined)
    await soon(client, reader.ack(message(again, 0)))
    assert.equal(client.groupNext("g"), 4n)
    assert.equal(one.messages.length, 3)
    await reader.shutdown()
  })

  test("behind a seek back a store passes no message that is not acknowledged again", async () => {
    const client = filled(6)
    const reader = await open(client, { count: 3 })
    await soon(client, reader.ackPage(await page(client, reader)))
    assert.equal(client.groupNext("g"), 3n)
    await reader.seek(0, { kind: "first" })
    const again = await page(client, reader)
    assert.deepEqual(texts(again), ["0", "1", "2"])
    await soon(client, reader.ack(message(again, 0)))
    assert.equal(reader.unacked, 1)
    await soon(client, reader.ack(message(again, 2)))
    assert.equal(reader.unacked, 1, "the one in the middle is still in hand")
    await soon(client, reader.ack(message(again, 1)))
    assert.equal(reader.unacked, 0)
    await reader.shutdown()
  })

  test("a message that was never handed out is none to acknowledge", async () => {
    const client = filled(6)
    const reader = await open(client, { count: 3 })
    const one = await page(client, reader)
    const foreign = {
      ...one,
      messages: [{ checkpoint: () => ({ ...message(one, 0).checkpoint(), offset: 5n }) } as unknown as Message],
    }
    await assert.rejects(reader.ackPage(foreign), InvalidError)
    await assert.rejects(reader.ackPage({ ...one, messages: [] }), InvalidError)
    await reader.shutdown()
  })
})

test("whatever is acknowledged in whatever order, what is stored is the acknowledged prefix", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 6 }),
      fc.integer({ min: 1, max: 7 }),
      fc.infiniteStream(fc.nat()),
      async (batches, count, choices) => {
        const client = new FakeClient()
        let total = 0
        for (const size of batches) {
          client.put(total, total + size)
          total += size
        }
        const reader = await open(client, { count })
        const open_: Message[] = []
        let handed = 0
        while (handed < total) {
          const one = await page(client, reader)
          open_.push(...one.messages)
          handed += one.messages.length
        }
        const acked = new Set<bigint>()
        while (open_.length > 0) {
          const [one] = open_.splice((choices.next().value as number) % open_.length, 1)
          assert.ok(one !== undefined)
          await soon(client, reader.ack(one))
          acked.add(one.position.offset)
          let prefix = 0n
          while (acked.has(prefix)) prefix++
          assert.equal(client.groupNext("g") ?? 0n, prefix)
        }
        assert.equal(reader.unacked, 0)
        await reader.shutdown()
        assert.equal(client.clock.timers, 0)
      },
    ),
    { numRuns: 40 },
  )
})
