import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { HistoryChangedError, InvalidError, NotFoundError, type PartitionRead } from "@millrace/contract"
import fc from "fast-check"
import { openGroupConsumer } from "../group/group-consumer.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textOf, textsOf } from "./fake-session.test-support.ts"
import type { LogConsumer } from "./log-consumer.ts"
import { openConsumer } from "./partition-consumer.ts"

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

async function member(client: FakeClient, options?: ConsumerOptions): Promise<LogConsumer> {
  const opening = openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)
  const assigned = Array.from({ length: client.partitions }, (_, partition) => client.claim(partition))
  client.groups.membership.tell({ assigned })
  await client.settle()
  return (await opening) as LogConsumer
}

/** What the one reader of a log was asked. */
function asked(
  client: FakeClient,
): { limits: { maxBytes: number; maxRecords: number; minRecords: number; maxWaitMs: number } }[] {
  const [reader] = client.log.readers
  assert.ok(reader !== undefined)
  return [...reader.asked]
}

describe("a poll", () => {
  test("asks for what the options say (table 2.4)", async () => {
    const client = new FakeClient()
    client.put(0, 1)
    const consumer = open(client)
    await take(consumer, 1)
    assert.deepEqual(asked(client)[0]?.limits, {
      maxBytes: 1_048_576,
      maxRecords: 16_000,
      minRecords: 1,
      maxWaitMs: 5000,
    })
    await consumer.shutdown()
  })

  test("waits for minRecords, but no longer than maxWaitMs", async () => {
    const client = new FakeClient()
    const consumer = open(client, { minRecords: 10, maxWaitMs: 2000 })
    const read = consumer.next()
    await client.settle()
    client.put(0, 4)
    let settled = false
    void read.then(() => (settled = true))
    await client.clock.advance(1999)
    assert.equal(settled, false)
    await client.clock.advance(1)
    await read
    await take(consumer, 3)
    const next = consumer.next()
    await client.settle()
    client.put(4, 14)
    await next
    assert.equal(client.clock.monotonicMs(), 2000, "with so many there it does not wait")
    await consumer.shutdown()
  })

  test("brings a record larger than maxBytes, and than the whole read-ahead, alone", async () => {
    const client = new FakeClient()
    for (let n = 0; n < 5; n++) client.log.put(client.place(), [{ payload: new Uint8Array(5000) }])
    const consumer = open(client, { maxBytes: 100, prefetchBytes: 200 })
    for (const [index, message] of (await take(consumer, 5)).entries()) {
      assert.equal(message.payload?.length, 5000)
      assert.equal(message.position.offset, BigInt(index))
    }
    await consumer.shutdown()
  })

  test("that comes back empty at once, again and again, does not spin (A-15)", async () => {
    const client = new FakeClient()
    client.log.answerEmptyAtOnce = true
    const consumer = open(client)
    const read = consumer.nextWithin(60_000).catch(() => undefined)
    await client.clock.advance(60_000)
    await read
    assert.ok(client.log.polls < 1000, `${client.log.polls} polls in a minute`)
    client.log.answerEmptyAtOnce = false
    client.put(0, 1)
    const began = client.clock.monotonicMs()
    const next = consumer.next()
    await client.clock.advance(64)
    assert.equal(textOf((await next).value as never), "0")
    assert.ok(client.clock.monotonicMs() - began <= 64)
    await consumer.shutdown()
  })

  test("whose answer says nothing new, again and again, does not spin either", async () => {
    const client = new FakeClient()
    client.put(0, 1)
    const consumer = open(client)
    await take(consumer, 1)
    const [reader] = client.log.readers
    assert.ok(reader !== undefined)
    let answers = 0
    reader.next = async (): Promise<PartitionRead[]> => {
      answers++
      return [{ ...client.place(), batches: [], nextOffset: 1n, head: 1n, lineage: "a" }]
    }
    client.put(1, 2)
    await take(consumer, 1)
    const read = consumer.nextWithin(60_000).catch(() => undefined)
    await client.clock.advance(60_000)
    await read
    assert.ok(answers > 10 && answers < 1000, `${answers} answers in a minute`)
    await consumer.shutdown()
  })

  test("pollIntervalMs comes after each that brought nothing, and after no other", async () => {
    const client = new FakeClient()
    for (let n = 0; n < 50; n += 5) client.put(n, n + 5)
    const consumer = open(client, { pollIntervalMs: 1000, maxWaitMs: 100, prefetchRecords: 5 })
    await take(consumer, 50)
    assert.equal(client.clock.monotonicMs(), 0)
    const before = client.log.polls
    const read = consumer.nextWithin(11_000).catch(() => undefined)
    await client.clock.advance(11_000)
    await read
    assert.ok(client.log.polls - before <= 11)
    await consumer.shutdown()
  })
})

describe("options of a poll", () => {
  for (const [options, message] of [
    [{ maxWaitMs: 600_001 }, /"maxWaitMs" is 600001; it must be a number of milliseconds above 0, at most 600000/],
    [{ maxWaitMs: 0 }, /"maxWaitMs" is 0/],
    [{ minRecords: 0 }, /"minRecords" is 0; it must be a whole number from 1 to 1000/],
    [{ minRecords: 1001 }, /"minRecords" is 1001; .* 1 to 1000/],
    [{ minRecords: 11, batchLength: 10 }, /"minRecords" is 11; .* 1 to 10/],
    [{ batchLength: 0 }, /"batchLength" is 0/],
    [{ maxBytes: 0 }, /"maxBytes" is 0/],
    [{ prefetchBytes: 0 }, /"prefetchBytes" is 0/],
    [{ prefetchRecords: 1.5 }, /"prefetchRecords" is 1.5/],
    [{ pollingRetryIntervalMs: 0 }, /"pollingRetryIntervalMs" is 0/],
    [{ onOutOfRange: "latest" as never }, /"onOutOfRange" is "latest"; it must be one of "first", "next", "fail"/],
    [{ onMissing: "create" as never }, /"onMissing" is "create"/],
    [{ startAt: { kind: "offset" } as never }, /startAt\.value is undefined/],
    [{ startAt: { kind: "latest" } as never }, /startAt\.kind is "latest"; it must be one of "first"/],
    [{ prefetch: 3 } as never, /unknown option "prefetch"/],
  ] as const) {
    test(`${JSON.stringify(options)} is refused`, () => {
      assert.throws(
        () => open(new FakeClient(), options),
        (error) => error instanceof InvalidError && message.test(error.message),
      )
    })
  }

  test("the read-ahead grows with batchLength", async () => {
    const client = new FakeClient()
    client.put(0, 1)
    const consumer = open(client, { batchLength: 50_000 })
    await take(consumer, 1)
    assert.equal(asked(client)[0]?.limits.maxRecords, 50_000)
    await consumer.shutdown()
  })
})

describe("the read-ahead of several partitions", () => {
  test("a loud partition never starves a quiet one", async () => {
    const client = new FakeClient({ partitions: 2 })
    for (let n = 0; n < 20_000; n += 100) client.put(n, n + 100, 0)
    const consumer = await member(client, { prefetchRecords: 1000, batchLength: 10 })
    await take(consumer, 1)
    await client.settle()
    let quiet = 0
    let late = 0
    let putMs = 0
    for (let n = 0; n < 5000; n++) {
      if (n % 500 === 0) {
        client.put(n, n + 1, 1)
        putMs = client.clock.monotonicMs()
      }
      const [message] = await take(consumer, 1)
      await client.clock.advance(5)
      if (message?.position.partition !== 1) continue
      quiet++
      late = Math.max(late, client.clock.monotonicMs() - putMs)
    }
    assert.equal(quiet, 10)
    assert.ok(late <= 210, `a message of the quiet partition came ${late} ms late`)
    await consumer.shutdown()
  })

  test("no partition is left out of the polls while the caller is quick, or is alone", async () => {
    for (const partitions of [1, 2]) {
      const client = new FakeClient({ partitions })
      for (let partition = 0; partition < partitions; partition++) {
        for (let n = 0; n < 5000; n += 10) client.put(n, n + 10, partition)
      }
      const consumer = await member(client, { prefetchRecords: 100 })
      await take(consumer, 10)
      const [reader] = client.log.readers
      const sets = reader?.sets.length ?? 0
      await take(consumer, 3000)
      if (partitions === 1) await client.clock.advance(10_000)
      await take(consumer, 1000)
      for (const set of reader?.sets.slice(sets) ?? []) assert.equal(set.length, partitions)
      await consumer.shutdown()
      assert.equal(client.clock.timers, 0)
    }
  })

  test("is bounded, and a partition that nobody takes from does not take the others' room", async () => {
    const client = new FakeClient({ partitions: 4 })
    for (let partition = 0; partition < 4; partition++) {
      for (let n = 0; n < 2000; n += 10) client.put(n, n + 10, partition)
    }
    const consumer = await member(client, { prefetchRecords: 200 })
    const feed = consumer.feed({ ready: () => {}, skip: async () => {} } as never)
    let most = 0
    let taken = 0
    for (let idle = 0; idle < 2; ) {
      const message = feed.take()
      most = Math.max(most, consumer.readAhead.records)
      if (message === undefined) {
        idle++
        await client.clock.advance(100)
        continue
      }
      idle = 0
      const { lane } = feed
      assert.ok(lane !== undefined)
      // Partition 0 is never done with its first message.
      if (message.position.partition === 0) feed.hold(lane)
      else {
        feed.handled(lane, message.position.offset)
        taken++
      }
    }
    assert.equal(taken, 6000)
    assert.ok(most <= 300, `${most} records were read ahead`)
    feed.release()
    await consumer.shutdown()
    assert.deepEqual({ bytes: consumer.readAhead.bytes, records: consumer.readAhead.records }, { bytes: 0, records: 0 })
  })

  /** Everything that makes the read-ahead void, in any order. */
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.record({ take: fc.integer({ min: 1, max: 30 }) }) },
    fc.record({ put: fc.nat({ max: 2 }) }),
    fc.record({ seek: fc.nat({ max: 2 }), to: fc.nat({ max: 60 }) }),
    fc.record({ purge: fc.nat({ max: 2 }) }),
    fc.record({ trim: fc.nat({ max: 2 }) }),
    fc.record({ lose: fc.nat({ max: 2 }) }),
    fc.record({ pause: fc.nat({ max: 2 }) }),
    fc.constant({ resume: true }),
  )

  test("is accounted for to the byte, whatever is handed out, dropped, purged or lost; and goes on", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const client = new FakeClient({ partitions: 3 })
        for (let partition = 0; partition < 3; partition++) {
          for (let n = 0; n < 60; n += 6) client.put(n, n + 6, partition)
        }
        const consumer = await member(client, { prefetchRecords: 30 })
        const owned = new Set([0, 1, 2])
        for (const one of steps) {
          if ("take" in one) await takeSome(client, consumer, one.take)
          else if ("put" in one) client.put(0, 6, one.put)
          else if ("seek" in one) {
            if (owned.has(one.seek)) await consumer.seek(one.seek, { kind: "offset", value: BigInt(one.to) })
          } else if ("purge" in one) client.log.purge(client.place(one.purge), `${Math.random()}`)
          else if ("trim" in one) {
            const place = client.place(one.trim)
            const found = client.log.find(place)
            if (found !== undefined) client.log.trim(place, (found.first + found.end) / 2n)
          } else if ("lose" in one) {
            if (owned.delete(one.lose)) client.groups.membership.tell({ lost: [client.claim(one.lose)] })
            else {
              owned.add(one.lose)
              client.groups.membership.tell({ assigned: [client.claim(one.lose)] })
            }
          } else if ("pause" in one) {
            if (owned.has(one.pause)) consumer.pause([one.pause])
          } else consumer.resume()
          await client.settle()
        }
        consumer.resume()
        for (const partition of owned) {
          client.log.put(client.place(partition), [{ payload: new TextEncoder().encode("last") }])
        }
        const seen = new Set<number>()
        for (let n = 0; n < 500 && seen.size < owned.size; n++) {
          const message = (await takeSome(client, consumer, 1))[0]
          if (message === undefined) await client.clock.advance(1000)
          else if (textOf(message) === "last") seen.add(message.position.partition)
        }
        assert.equal(seen.size, owned.size, "every partition is read to its end")
        await takeSome(client, consumer, 1)
        assert.deepEqual([consumer.readAhead.bytes, consumer.readAhead.records], [0, 0])
        await consumer.shutdown()
      }),
      { numRuns: 60 },
    )
  })
})

describe("partitions and histories", () => {
  test("partitions that are added leave a consumer of one alone", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    const consumer = open(client)
    await take(consumer, 2)
    client.partitions = 3
    client.log.add(client.place(1))
    client.put(100, 105, 1)
    assert.deepEqual(textsOf(await take(consumer, 3)), ["2", "3", "4"])
    await consumer.shutdown()
  })

  test("no poll names a partition before its position is known (A-06)", async () => {
    const client = new FakeClient({ partitions: 4 })
    for (let partition = 0; partition < 4; partition++) {
      client.put(0, 10, partition)
      client.storeNext({ kind: "group", name: "g" }, 5n, partition)
    }
    const consumer = await member(client)
    await take(consumer, 20)
    client.groups.membership.tell({ lost: [client.claim(3)] })
    await client.settle()
    const gate = Promise.withResolvers<void>()
    client.offsets.beforeLoad = () => gate.promise
    client.storeNext({ kind: "group", name: "g" }, 8n, 3)
    client.groups.membership.tell({ assigned: [client.claim(3)] })
    const read = consumer.next()
    await client.clock.advance(5000)
    const [reader] = client.log.readers
    assert.ok(reader?.sets.at(-1)?.every(({ partition }) => partition !== 3))
    gate.resolve()
    const first = (await read).value
    assert.equal(first?.position.partition, 3)
    assert.equal(first?.position.offset, 8n)
    await consumer.shutdown()
  })

  test("a topic deleted while it is read, with onMissing wait: read from its start once it is there again", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    const consumer = open(client, { onMissing: "wait", pollingRetryIntervalMs: 100 })
    const changes: unknown[] = []
    consumer.on({ sourceChanged: (change) => changes.push(change) })
    await take(consumer, 5)
    // What was handled cannot be stored any more either.
    client.offsets.failures.push(new NotFoundError("the topic is gone"))
    const read = consumer.nextWithin(600_000)
    client.log.partitions.clear()
    client.log.wake()
    await client.clock.advance(30_000)
    client.log.add(client.place()).lineage = "b"
    client.put(100, 102)
    await client.clock.advance(200)
    assert.equal(textOf(await read), "100")
    assert.deepEqual(changes, [{ ...client.place(), offset: 0n }])
    await consumer.shutdown()
  })

  test("a purge that only trims is a skip, and its count is told", async () => {
    const client = new FakeClient()
    client.put(0, 50)
    const consumer = open(client, { prefetchRecords: 10 })
    const skips: bigint[] = []
    consumer.on({ skipped: ({ count }) => skips.push(count) })
    await take(consumer, 50)
    client.put(50, 60)
    client.put(60, 70)
    await take(consumer, 1)
    client.log.trim(client.place(), 70n)
    await take(consumer, 9)
    const read = consumer.next()
    await client.settle()
    client.put(70, 71)
    const first = textOf((await read).value as never)
    assert.ok(first === "60" || first === "70", first)
    assert.deepEqual(skips, first === "70" ? [10n] : [])
    await consumer.shutdown()
  })

  test("a damaged batch does not end the reading of what lies before it", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    client.put(5, 10)
    const found = client.log.find(client.place())
    const [first, second] = found?.batches ?? []
    assert.ok(first !== undefined && second !== undefined)
    second.indexOf = () => {
      throw new HistoryChangedError("not of this kind")
    }
    const consumer = open(client, { startAt: { kind: "offset", value: 2n } })
    assert.deepEqual(textsOf(await take(consumer, 3)), ["2", "3", "4"])
    await take(consumer, 5)
    const moved = consumer.seek(0, { kind: "offset", value: 7n })
    await moved
    const error = (await consumer.next().catch((cause) => cause)) as { kind: string; context: unknown }
    assert.equal(error.kind, "corruption")
    assert.deepEqual(error.context, { ...client.place(), offset: 5n, nextOffset: 10n })
    await consumer.seek(0, "skip")
    client.put(10, 11)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["10"])
    await consumer.shutdown()
  })
})

/** So many messages as there are without waiting for time to pass; failures are passed over. */
async function takeSome(client: FakeClient, consumer: Consumer, most: number) {
  const messages = []
  for (let tries = 0; messages.length < most && tries < most * 4; tries++) {
    const outcome = consumer.nextWithin(0).then(
      (message) => message,
      () => undefined,
    )
    await client.settle()
    const message = await outcome
    if (message !== undefined) messages.push(message)
  }
  return messages
}
