/** Reading a group in pages. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  BufferFullError,
  CancelledError,
  ClosedError,
  CorruptionError,
  DecodeError,
  InvalidError,
  TimeoutError,
} from "@millrace/contract"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { filled, message, open, page, soon, texts } from "./group-page-reader.test-support.ts"
import { openGroupReader } from "./group-page-reader.ts"
import type { MatchedPage } from "./page-ledger.ts"

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

describe("an error behind pages that are ready", () => {
  test("is not told any more when its partition was moved meanwhile", async () => {
    const client = filled(2)
    const context = { ...client.place(), offset: 2n, nextOffset: 3n }
    client.log.find(client.place())?.damage.push({ offset: 2n, error: new CorruptionError("damaged", { context }) })
    client.put(2, 4)
    const reader = await open(client, { maxBytes: 1, count: 3 })
    await client.clock.advance(100)
    assert.deepEqual(texts(await page(client, reader)), ["0"])
    await reader.seek(0, { kind: "offset", value: 3n })
    assert.deepEqual(texts(await page(client, reader)), ["3"])
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
