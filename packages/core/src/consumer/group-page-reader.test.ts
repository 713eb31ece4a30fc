import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  BufferFullError,
  CancelledError,
  ClosedError,
  DecodeError,
  HistoryChangedError,
  InvalidError,
  NotAssignedError,
  TimeoutError,
} from "@millrace/contract"
import fc from "fast-check"
import type { Message } from "../record/message.ts"
import { FakeClient, textOf } from "./fake-session.test-support.ts"
import { openGroupReader } from "./group-page-reader.ts"
import type { GroupReader } from "./group-reader.ts"
import type { GroupReaderOptions } from "./group-reader-options.ts"
import type { MatchedPage } from "./page-ledger.ts"

async function open(client: FakeClient, options?: GroupReaderOptions): Promise<GroupReader> {
  const assigned = Array.from({ length: client.partitions }, (_, partition) => client.claim(partition))
  client.groups.membership.tell({ assigned })
  return openGroupReader(client.context, { topic: client.topic, group: "g" }, options)
}

/** What comes within half a second of virtual time. */
async function soon<V>(client: FakeClient, work: Promise<V>): Promise<V> {
  let settled = false
  const watched = work.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let step = 0; step < 50 && !settled; step++) await client.clock.advance(step === 0 ? 0 : 10)
  assert.ok(settled, "nothing came within half a second")
  return watched
}

async function page(client: FakeClient, reader: GroupReader): Promise<MatchedPage> {
  return soon(client, reader.nextWithin(1000))
}

function texts({ messages }: MatchedPage): string[] {
  return messages.map(textOf)
}

function message(from: MatchedPage, index: number): Message {
  const found = from.messages[index]
  assert.ok(found !== undefined)
  return found
}

function filled(records: number, partitions = 1): FakeClient {
  const client = new FakeClient({ partitions })
  for (let partition = 0; partition < partitions; partition++) client.put(0, records, partition)
  return client
}

describe("the reader of a group", () => {
  test("gives pages of one partition, and stores what is acknowledged", async () => {
    const client = filled(10)
    const reader = await open(client, { count: 4 })
    const first = await page(client, reader)
    assert.deepEqual(
      { stream: first.stream, topic: first.topic, partition: first.partition, messages: texts(first) },
      { ...client.topic, partition: 0, messages: ["0", "1", "2", "3"] },
    )
    assert.equal(reader.unacked, 1)
    await client.clock.advance(10_000)
    assert.equal(client.groupNext("g"), undefined, "nothing counts but what is acknowledged")
    await soon(client, reader.ackPage(first))
    assert.equal(client.groupNext("g"), 4n)
    assert.equal(reader.unacked, 0)
    assert.deepEqual(texts(await page(client, reader)), ["4", "5", "6", "7"])
    assert.deepEqual(texts(await page(client, reader)), ["8", "9"])
    await reader.shutdown()
    assert.equal(client.groupNext("g"), 4n)
    assert.equal(client.clock.timers, 0)
  })

  test("acknowledgements come in any order: what is stored never passes one that is missing", async () => {
    const client = filled(6)
    const reader = await open(client, { count: 3 })
    const [one, other] = [await page(client, reader), await page(client, reader)]
    await soon(client, reader.ackPage(other))
    await soon(client, reader.ack(message(one, 1)))
    assert.equal(client.groupNext("g"), undefined)
    await soon(client, reader.ack(message(one, 0)))
    assert.equal(client.groupNext("g"), 2n)
    await soon(client, reader.ack(message(one, 0)))
    await soon(client, reader.ack(message(one, 2)))
    assert.equal(client.groupNext("g"), 6n)
    assert.equal(reader.unacked, 0)
    await reader.shutdown()
  })

  test("ackThrough covers every page of the partition before, and no other partition", async () => {
    const client = filled(6, 2)
    const reader = await open(client, { count: 3 })
    const pages = [
      await page(client, reader),
      await page(client, reader),
      await page(client, reader),
      await page(client, reader),
    ]
    const last = pages.findLast(({ partition }) => partition === 0) as MatchedPage
    await soon(client, reader.ackThrough(message(last, 1)))
    assert.equal(client.groupNext("g", 0), message(last, 1).position.offset + 1n)
    assert.equal(client.groupNext("g", 1), undefined)
    assert.equal(reader.unacked, 3)
    await reader.shutdown()
  })

  test("leaving its scope stores what is acknowledged and nothing more", async () => {
    const client = filled(6)
    const reader = await open(client, { count: 2 })
    const [one, other] = [await page(client, reader), await page(client, reader)]
    await soon(client, reader.ackPage(one))
    await soon(client, reader.ack(message(other, 1)))
    await reader[Symbol.asyncDispose]()
    assert.equal(client.groupNext("g"), 2n)
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.clock.timers, 0)
  })

  test("pages keep within their bounds: bytes, offsets, and a first message alone above them", async () => {
    const client = new FakeClient()
    const sized = (bytes: number) => ({ payload: new Uint8Array(bytes), key: new Uint8Array(1) })
    client.log.put(client.place(), [sized(40), sized(40), sized(200), sized(10)])
    client.log.put(client.place(), [sized(1)], { at: 104n })
    const reader = await open(client, { maxBytes: 100, maxExamined: 50 })
    const lengths = []
    for (let i = 0; i < 4; i++) lengths.push((await page(client, reader)).messages.length)
    assert.deepEqual(lengths, [2, 1, 1, 1])
    await reader.shutdown()
  })

  test("pages of small batches of several partitions are filled all the same", async () => {
    const client = new FakeClient({ partitions: 2 })
    for (let n = 0; n < 10; n++) for (const partition of [0, 1]) client.put(n, n + 1, partition)
    const reader = await open(client, { count: 20 })
    const pages = [await page(client, reader), await page(client, reader)]
    assert.deepEqual(
      pages.map(({ messages }) => messages.length),
      [10, 10],
    )
    for (const { messages } of pages) {
      const offsets = messages.map(({ position }) => position.offset)
      assert.deepEqual(
        offsets,
        Array.from({ length: 10 }, (_, n) => BigInt(n)),
      )
    }
    await reader.shutdown()
  })

  test("too many unacknowledged pages are refused until some are acknowledged", async () => {
    const client = filled(10)
    const reader = await open(client, { count: 1, unackedPages: 2 })
    const [one] = [await page(client, reader), await page(client, reader)]
    await assert.rejects(
      reader.next(),
      (error) => error instanceof BufferFullError && /unackedPages/.test(error.message),
    )
    assert.equal(reader.unacked, 2)
    await soon(client, reader.ackPage(one as MatchedPage))
    assert.deepEqual(texts(await page(client, reader)), ["2"])
    await reader.shutdown()
  })

  test("poll waits idleMs, nextWithin as long as it says; what comes later goes to the next call", async () => {
    const client = new FakeClient()
    const reader = await open(client)
    const polled = reader.poll()
    await client.clock.advance(249)
    let answered = false
    const noted = polled.then(() => {
      answered = true
    })
    await client.settle()
    assert.equal(answered, false)
    await client.clock.advance(1)
    assert.equal(await polled, undefined)
    await noted
    const late = reader.nextWithin(50)
    late.catch(() => {})
    await client.clock.advance(50)
    await assert.rejects(late, TimeoutError)
    client.put(0, 2)
    assert.deepEqual(texts((await soon(client, reader.poll())) as MatchedPage), ["0", "1"])
    await assert.rejects(reader.nextWithin(-1), InvalidError)
    await reader.shutdown()
    await assert.rejects(reader.poll(), ClosedError)
    assert.equal(client.clock.timers, 0)
  })

  test("a signal ends a wait and takes nothing with it; a loop over pages ends with the reader", async () => {
    const client = new FakeClient()
    const reader = await open(client)
    const stop = new AbortController()
    const waiting = reader.nextWithin(1000, { signal: stop.signal })
    waiting.catch(() => {})
    stop.abort()
    await assert.rejects(waiting, CancelledError)
    await assert.rejects(reader.nextWithin(1000, { signal: stop.signal }), CancelledError)
    const seen: string[][] = []
    const loop = (async () => {
      for await (const one of reader) seen.push(texts(one))
    })()
    const signalled = new AbortController()
    const other = (async () => {
      for await (const one of reader.stream({ signal: signalled.signal })) seen.push(texts(one))
    })()
    other.catch(() => {})
    await client.settle()
    client.put(0, 2)
    await client.clock.advance(100)
    assert.deepEqual(seen, [["0", "1"]])
    signalled.abort()
    await assert.rejects(other, CancelledError)
    await reader.shutdown()
    await loop
    assert.deepEqual(await reader.next(), { done: true, value: undefined })
  })

  test("a record that cannot be decrypted comes in its place, behind the pages before it, and skip goes past it", async () => {
    const client = filled(2)
    client.log.put(client.place(), [{ payload: new Uint8Array(1) }])
    client.put(3, 5)
    const batch = client.log.find(client.place())?.batches[1]
    assert.ok(batch !== undefined)
    const failing = new DecodeError("not decrypted", { context: { ...client.place(), offset: 2n } })
    const encryptor = {
      opener: () => ({
        open: (_: unknown, record: { payload: Uint8Array | null }) => {
          if (record.payload?.length === 1 && record.payload[0] === 0) throw failing
          return undefined
        },
      }),
      sealer: () => assert.fail("nothing is sent"),
    }
    const context = { ...client.context, encryptor: encryptor as never }
    client.groups.membership.tell({ assigned: [client.claim(0)] })
    const reader = await openGroupReader(context, { topic: client.topic, group: "g" })
    const first = await page(client, reader)
    assert.deepEqual(texts(first), ["0", "1"])
    await assert.rejects(page(client, reader), DecodeError)
    await reader.seek(0, "skip")
    const next = await page(client, reader)
    assert.deepEqual(texts(next), ["3", "4"])
    await soon(client, reader.ackPage(next))
    await soon(client, reader.ackPage(first))
    assert.equal(client.groupNext("g"), 5n)
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

describe("options of a group's reader", () => {
  const wrong: [string, object][] = [
    ["count", { count: 0 }],
    ["count", { count: 1001 }],
    ["maxExamined", { maxExamined: 0 }],
    ["maxBytes", { maxBytes: 0.5 }],
    ["idleMs", { idleMs: -1 }],
    ["unackedPages", { unackedPages: 0 }],
    ["commitPolicy", { commitPolicy: { kind: "all" } }],
    ["startAt", { startAt: { kind: "middle" } }],
  ]
  for (const [name, options] of wrong) {
    test(`${JSON.stringify(options)} is refused by name`, async () => {
      const client = new FakeClient()
      await assert.rejects(
        open(client, options),
        (error) => error instanceof InvalidError && error.message.includes(name),
      )
    })
  }
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
