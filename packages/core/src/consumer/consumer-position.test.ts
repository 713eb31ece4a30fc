import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CorruptionError, OffsetOutOfRangeError } from "@millrace/contract"
import type { Message } from "../record/message.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient, fakeManifest, take, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

const worker = { kind: "consumer", name: "worker" } as const

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

/** A call that fails only once time has passed. */
async function failing(client: FakeClient, call: Promise<unknown>, ms = 0): Promise<unknown> {
  const outcome = call.then(
    () => undefined,
    (error) => error,
  )
  await client.clock.advance(ms)
  return outcome
}

const filled = (records: number): FakeClient => {
  const client = new FakeClient()
  for (let n = 0; n < records; n += 5) client.put(n, Math.min(n + 5, records))
  return client
}

describe("startAt, with nothing stored", () => {
  const starts: [ConsumerOptions["startAt"], string][] = [
    [undefined, "0"],
    [{ kind: "next" }, "0"],
    [{ kind: "first" }, "0"],
    [{ kind: "last" }, "11"],
    [{ kind: "offset", value: 7n }, "7"],
  ]
  for (const [startAt, first] of starts) {
    test(`${JSON.stringify(startAt?.kind)} begins at ${first}`, async () => {
      const consumer = open(filled(12), startAt === undefined ? {} : { startAt })
      assert.deepEqual(textsOf(await take(consumer, 1)), [first])
      await consumer.shutdown()
    })
  }

  test("next begins at the first retained record", async () => {
    const client = filled(12)
    client.log.trim(client.place(), 5n)
    const consumer = open(client)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["5"])
    await consumer.shutdown()
  })

  test("last on an empty partition gets the first record that comes", async () => {
    const client = new FakeClient()
    const consumer = open(client, { startAt: { kind: "last" } })
    const waiting = consumer.next()
    await client.settle()
    client.put(0, 2)
    assert.deepEqual(textsOf([(await waiting).value as Message]), ["0"])
    await consumer.shutdown()
  })
})

describe("startAt by time (A-15)", () => {
  /** 100 records in batches of 7, one each ten microseconds. */
  const timed = (): FakeClient => {
    const client = new FakeClient()
    for (let from = 0; from < 100; from += 7) {
      const records = []
      for (let n = from; n < Math.min(100, from + 7); n++) {
        records.push({ payload: new TextEncoder().encode(String(n)), timestampMicros: BigInt(1000 + 10 * n) })
      }
      client.log.put(client.place(), records)
    }
    return client
  }
  const by = (value: bigint): ConsumerOptions => ({ startAt: { kind: "timestampMicros", value } })

  test("gives each record from that time on exactly once, then waits", async () => {
    const client = timed()
    const consumer = open(client, by(1400n))
    const messages = await take(consumer, 60)
    assert.deepEqual(
      messages.map(({ position }) => position.offset),
      Array.from({ length: 60 }, (_, n) => BigInt(40 + n)),
    )
    const polls = client.log.polls
    const waiting = consumer.next()
    await client.clock.advance(60_000)
    assert.ok(client.log.polls - polls <= 13)
    await consumer.shutdown()
    assert.equal((await waiting).done, true)
  })

  test("between two times begins at the later record; before all, at the first", async () => {
    for (const [value, offset] of [
      [1395n, 40n],
      [0n, 0n],
      [1000n, 0n],
      [1990n, 99n],
    ] as const) {
      const consumer = open(timed(), by(value))
      assert.equal((await take(consumer, 1))[0]?.position.offset, offset, `at ${value}`)
      await consumer.shutdown()
    }
  })

  test("of equal times, begins at the first", async () => {
    const client = new FakeClient()
    client.log.put(
      client.place(),
      [5n, 7n, 7n, 7n, 9n].map((timestampMicros) => ({ timestampMicros })),
    )
    const consumer = open(client, by(7n))
    assert.equal((await take(consumer, 1))[0]?.position.offset, 1n)
    await consumer.shutdown()
  })

  test("behind the end waits for new records, whatever their time", async () => {
    const client = timed()
    const consumer = open(client, by(10_000_000n))
    const waiting = consumer.next()
    await client.settle()
    client.log.put(client.place(), [{ timestampMicros: 2000n }, { timestampMicros: 2001n }])
    assert.equal(((await waiting).value as Message).position.offset, 100n)
    await consumer.shutdown()
  })
})

describe("a stored offset", () => {
  for (const startAt of [{ kind: "first" }, { kind: "last" }, { kind: "offset", value: 2n }] as const) {
    test(`overrules ${startAt.kind}`, async () => {
      const client = filled(12)
      client.storeNext(worker, 6n)
      const consumer = open(client, { startAt })
      assert.deepEqual(textsOf(await take(consumer, 1)), ["6"])
      await consumer.shutdown()
    })
  }

  test("is overruled with allowReplay", async () => {
    const client = filled(12)
    client.storeNext(worker, 6n)
    const consumer = open(client, { startAt: { kind: "first" }, allowReplay: true })
    assert.deepEqual(textsOf(await take(consumer, 3)), ["0", "1", "2"])
    await consumer.shutdown()
  })

  test("with allowReplay moves forward only, whatever the policy, and on from where it was", async () => {
    for (const startAt of [
      { kind: "first" },
      { kind: "offset", value: 2n },
      { kind: "timestampMicros", value: 0n },
    ] as const) {
      for (const kind of ["each", "polling"] as const) {
        const client = filled(12)
        client.storeNext(worker, 8n)
        const replay = { startAt, allowReplay: true, commitPolicy: { kind }, batchLength: 1 } as const
        const consumer = open(client, replay)
        await take(consumer, 3)
        await consumer.shutdown()
        assert.equal(client.storedNext("worker"), 8n, `${startAt.kind}, ${kind}`)
        const again = open(client, replay)
        await take(again, 10)
        await again.shutdown()
        assert.equal(client.storedNext("worker"), startAt.kind === "offset" ? 12n : 10n, `${startAt.kind}, ${kind}`)
      }
    }
  })

  test("with allowReplay and next, is where it begins", async () => {
    const client = filled(12)
    client.storeNext(worker, 6n)
    const consumer = open(client, { allowReplay: true })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["6"])
    await consumer.shutdown()
  })

  test("of an earlier history does not count", async () => {
    const client = filled(12)
    client.storeNext(worker, 6n)
    client.log.purge(client.place(), "b")
    client.put(0, 3)
    const consumer = open(client)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["0"])
    await consumer.shutdown()
  })
})

describe("a position that retention has passed (A-13)", () => {
  const trimmed = (): FakeClient => {
    const client = filled(20)
    client.storeNext(worker, 6n)
    client.log.trim(client.place(), 10n)
    return client
  }

  test("goes on at the first record by default, tells how many were skipped, and commits behind them", async () => {
    const client = trimmed()
    const consumer = open(client)
    const skips: unknown[] = []
    consumer.on({ skipped: (skip) => skips.push(skip) })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["10"])
    assert.deepEqual(skips, [{ ...client.place(), from: 6n, to: 10n, count: 4n }])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 11n)
  })

  test("goes on at the end with next", async () => {
    const client = trimmed()
    const consumer = open(client, { onOutOfRange: "next" })
    const skips: bigint[] = []
    consumer.on({ skipped: ({ count }) => skips.push(count) })
    const waiting = consumer.next()
    await client.settle()
    client.put(20, 21)
    assert.deepEqual(textsOf([(await waiting).value as Message]), ["20"])
    assert.deepEqual(skips, [14n])
    await consumer.shutdown()
  })

  test("fails with the numbers, again at each later read, and never hangs", async () => {
    const client = trimmed()
    const consumer = open(client, { onOutOfRange: "fail" })
    for (let attempt = 0; attempt < 3; attempt++) {
      const error = await failing(client, consumer.next(), 1000)
      assert.ok(error instanceof OffsetOutOfRangeError, String(error))
      assert.match(error.message, /partition 0 of topic "s\/t": the position 6 is out of range: .* offsets 10 to 19/)
    }
    await consumer.storeOffset(9n, 0, { resetPosition: true })
    assert.deepEqual(textsOf(await take(consumer, 1)), ["10"])
    await consumer.shutdown()
  })

  test("hands out what was read before the position was lost", async () => {
    const client = filled(20)
    const consumer = open(client, { prefetchRecords: 10, onOutOfRange: "fail" })
    const messages = await take(consumer, 1)
    client.log.trim(client.place(), 18n)
    messages.push(...(await take(consumer, 9)))
    assert.equal(messages.length, 10)
    assert.ok((await failing(client, consumer.next())) instanceof OffsetOutOfRangeError)
    await consumer.shutdown()
  })

  test("behind the end, begins anew and stores what is read then", async () => {
    const client = filled(5)
    client.storeNext(worker, 1000n)
    const consumer = open(client)
    const skips: unknown[] = []
    consumer.on({ skipped: (skip) => skips.push(skip) })
    assert.deepEqual(textsOf(await take(consumer, 2)), ["0", "1"])
    assert.deepEqual(skips, [{ ...client.place(), from: 1000n, to: 0n, count: 0n }])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 2n)
  })
})

describe("holes (A-16)", () => {
  test("are jumped, also by the lag", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    client.log.put(
      client.place(),
      Array.from({ length: 10 }, (_, n) => ({ payload: new TextEncoder().encode(String(50 + n)) })),
      { at: 50n },
    )
    client.storeNext(worker, 10n)
    const consumer = open(client)
    assert.deepEqual(textsOf(await take(consumer, 10))[0], "50")
    const waiting = consumer.next()
    await client.settle()
    assert.equal((await consumer.lag())[0]?.lag, 0n)
    await consumer.shutdown()
    await waiting
  })

  test("where the backend has none, are damage, and what lies before is handed out", async () => {
    const manifest = { ...fakeManifest, read: { ...fakeManifest.read, holes: false } }
    const client = new FakeClient({ manifest })
    client.put(0, 3)
    client.log.put(client.place(), [{}], { at: 7n })
    const consumer = open(client)
    assert.equal((await take(consumer, 3)).length, 3)
    const error = await failing(client, consumer.next())
    assert.ok(error instanceof CorruptionError && /record 3 is missing/.test(error.message), String(error))
    await consumer.shutdown()
  })
})

describe("large numbers (A-18)", () => {
  test("offsets beyond 2^53 come and go without losing a digit", async () => {
    const client = new FakeClient()
    const offset = 2n ** 53n + 1n
    client.log.put(client.place(), [{ timestampMicros: 1_700_000_000_123_456_789n, payload: new Uint8Array(0) }], {
      at: offset,
    })
    const consumer = open(client)
    const [message] = (await take(consumer, 1)) as [Message]
    assert.equal(message.position.offset, offset)
    assert.equal(message.timestampMicros, 1_700_000_000_123_456_789n)
    const json = JSON.parse(JSON.stringify(message))
    assert.equal(json.offset, "9007199254740993")
    assert.equal(json.timestampMicros, "1700000000123456789")
    await consumer.commit(message)
    assert.deepEqual(await consumer.storedOffset(), { stored: offset, current: offset })
    assert.equal((await consumer.lag())[0]?.lag, 0n)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), offset + 1n)
  })
})
