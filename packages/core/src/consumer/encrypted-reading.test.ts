import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError, Headers, HeaderValue, InvalidError } from "@millrace/contract"
import { systemRandom } from "@millrace/runtime"
import fc from "fast-check"
import type { ClientContext } from "../client/context.ts"
import { Json } from "../codec/json.ts"
import { openCursor } from "../cursor/log-cursor.ts"
import { encryptor } from "../encryption/encryptor.ts"
import { record } from "../encryption/sealed-record.test-support.ts"
import { running } from "../handler/running-consumer.test-support.ts"
import type { Message } from "../record/message.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { openTypedReader } from "../typed/typed-reader.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import type { FakeRecord } from "./fake-log.test-support.ts"
import { FakeClient, fakeManifest, take, textOf, textsOf } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

const ours = encryptor({ current: "k", keys: { k: new Uint8Array(32).fill(1) } })
const theirs = encryptor({ current: "x", keys: { x: new Uint8Array(32).fill(2) } })
const utf8 = new TextEncoder()
const sealers = [ours, theirs].map((one) => one.sealer({ limits: fakeManifest.limits, random: systemRandom }))

/** A stored record of the topic `s/t`, encrypted with our key, or with `foreign` one. */
function stored(plain: SendableRecord | string, options: { readonly foreign?: boolean } = {}): FakeRecord {
  const sendable = typeof plain === "string" ? utf8.encode(plain) : plain
  const sealed = sealers[options.foreign ? 1 : 0]?.seal({ stream: "s", topic: "t" }, sendable) as SendableRecord
  return sealed instanceof Uint8Array ? { payload: sealed } : { payload: sealed.payload, headers: sealed.headers }
}

function put(client: FakeClient, records: readonly FakeRecord[]): void {
  client.log.put(client.place(), records)
}

function withEncryptor(client: FakeClient): ClientContext {
  return { ...client.context, encryptor: ours }
}

function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  const source = { topic: client.topic, name: "worker", partition: 0 }
  return openConsumer(withEncryptor(client), source, options)
}

function isDecodeError(offset: bigint): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof DecodeError, String(error))
    const { stream, topic, partition } = error.context
    assert.deepEqual(
      { stream, topic, partition, offset: error.context.offset },
      { stream: "s", topic: "t", partition: 0, offset },
    )
    assert.match(error.message, new RegExp(`^offset ${offset} of partition 0 of topic "s/t" does not decrypt: `))
    return true
  }
}

describe("a consumer under an encryptor", () => {
  test("hands out what the record held, and a copy of it holds the same", async () => {
    const client = new FakeClient()
    const headers = Headers.from({ h: HeaderValue.int32(7) })
    put(client, [
      stored(record({ payload: utf8.encode("one"), headers })),
      stored(record({ payload: null, headers })),
      stored(""),
    ])
    const consumer = open(client)
    const [first, second, third] = await take(consumer, 3)
    for (const message of [first, first?.copy()]) {
      assert.equal(message && textOf(message), "one")
      assert.deepEqual(message?.headers.toJSON(), headers.toJSON())
      assert.equal(message?.headersError, undefined)
      assert.equal(message?.toJSON().payload, Buffer.from("one").toString("base64"))
    }
    assert.equal(second?.payload, null)
    assert.equal(second?.headers.get("h")?.value, 7)
    assert.deepEqual(third?.payload, new Uint8Array(0))
    await consumer.shutdown()
  })

  test("shows trace context that stands beside the envelope, and no other header that somebody added", async () => {
    const client = new FakeClient()
    const secret = stored(record({ payload: utf8.encode("p"), headers: Headers.from({ h: "v" }) }))
    const beside = Headers.from({ admin: "true", traceparent: "00-a-b-01", tracestate: "x=1" })
    put(client, [
      { ...secret, headers: beside },
      { ...stored("q"), headers: beside },
      { ...stored("r"), headers: new DecodeError("cut off") },
    ])
    const consumer = open(client)
    const names = (await take(consumer, 3)).flatMap((message) =>
      [message, message.copy()].map(({ headers, headersError }) => {
        assert.equal(headersError, undefined)
        return Array.from(headers, ([name]) => name)
      }),
    )
    assert.deepEqual(names, [
      ["h", "traceparent", "tracestate"],
      ["h", "traceparent", "tracestate"],
      ["traceparent", "tracestate"],
      ["traceparent", "tracestate"],
      [],
      [],
    ])
    await consumer.shutdown()
  })

  test("tells a record that does not decrypt in its place, and the next read goes past it", async () => {
    const client = new FakeClient()
    put(client, [stored("0"), stored("1", { foreign: true }), { payload: utf8.encode("plain") }, stored("3")])
    const consumer = open(client)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["0"])
    await assert.rejects(consumer.nextWithin(1000), isDecodeError(1n))
    await assert.rejects(consumer.next(), isDecodeError(2n))
    assert.deepEqual(textsOf(await take(consumer, 1)), ["3"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })

  for (const commitPolicy of [
    { kind: "polling" },
    { kind: "all" },
    { kind: "each" },
    { kind: "auto", after: "delivery", every: "message" },
  ] as const) {
    test(`a shutdown behind such a record does not store it as handled (${commitPolicy.kind})`, async () => {
      const client = new FakeClient()
      put(client, [stored("0"), stored("1", { foreign: true }), stored("2")])
      const consumer = open(client, { commitPolicy })
      await take(consumer, 1)
      await assert.rejects(consumer.nextWithin(1000), isDecodeError(1n))
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 1n)
      const again = open(client, { commitPolicy })
      await assert.rejects(again.nextWithin(1000), isDecodeError(1n), "it comes again")
      await again.shutdown()
      assert.equal(client.storedNext("worker"), 1n)
    })
  }

  for (const commitPolicy of [
    { kind: "polling" },
    { kind: "each" },
    { kind: "auto", after: "marked", every: 1 },
  ] as const) {
    test(`seek to skip makes such a record handled (${commitPolicy.kind})`, async () => {
      const client = new FakeClient()
      put(client, [stored("0"), stored("1", { foreign: true }), stored("2")])
      const consumer = open(client, { commitPolicy })
      const [first] = await take(consumer, 1)
      assert.ok(first !== undefined)
      if (commitPolicy.kind === "auto") consumer.mark(first)
      await assert.rejects(consumer.nextWithin(1000), isDecodeError(1n))
      await consumer.seek(0, "skip")
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 2n)
      const again = open(client, { commitPolicy })
      assert.deepEqual(textsOf(await take(again, 1)), ["2"])
      await again.shutdown()
    })
  }

  for (const commitPolicy of [
    { kind: "polling" },
    { kind: "each" },
    { kind: "disabled" },
    { kind: "auto", after: "delivery", every: "batch" },
  ] as const) {
    test(`seek to skip goes past a record that a run has stopped at (${commitPolicy.kind})`, async () => {
      const client = new FakeClient()
      put(client, [stored("0"), stored("1", { foreign: true }), stored("2")])
      const consumer = open(client, { commitPolicy })
      const seen: string[] = []
      const handler = (message: Message): void => void seen.push(textOf(message))
      const first = running(consumer, handler)
      await client.clock.advance(100)
      assert.ok(isDecodeError(1n)(first.done))
      await consumer.seek(0, "skip")
      await assert.rejects(consumer.seek(0, "skip"), InvalidError)
      const second = running(consumer, handler)
      await client.clock.advance(100)
      await consumer.shutdown()
      assert.deepEqual([second.done, seen], [undefined, ["0", "2"]])
      assert.equal(client.storedNext("worker"), commitPolicy.kind === "disabled" ? undefined : 3n)
    })
  }

  test("a run that stops at such a record and is not told to skip it begins with it again", async () => {
    const client = new FakeClient()
    put(client, [stored("0"), stored("1", { foreign: true }), stored("2")])
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    for (const expected of [["0"], []]) {
      const seen: string[] = []
      const state = running(consumer, (message) => void seen.push(textOf(message)))
      await client.clock.advance(100)
      assert.ok(isDecodeError(1n)(state.done))
      assert.deepEqual(seen, expected)
    }
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 1n)
  })

  test("seek to skip drops nothing of what was read ahead, and is refused once reading has gone on", async () => {
    const client = new FakeClient()
    put(client, [stored("0"), stored("1", { foreign: true }), stored("2"), stored("3")])
    const consumer = open(client)
    await take(consumer, 1)
    await assert.rejects(consumer.nextWithin(1000), isDecodeError(1n))
    await consumer.seek(0, "skip")
    await assert.rejects(consumer.seek(0, "skip"), InvalidError)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["2"])
    await consumer.seek(0, { kind: "offset", value: 1n })
    await assert.rejects(consumer.nextWithin(1000), isDecodeError(1n))
    assert.deepEqual(textsOf(await take(consumer, 1)), ["2"])
    await assert.rejects(consumer.seek(0, "skip"), /reading has gone on since its last error/)
    assert.deepEqual(textsOf(await take(consumer, 1)), ["3"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })

  test("a loop ends at such a record, and another loop goes on behind it", async () => {
    const client = new FakeClient()
    put(client, [stored("0"), stored("1", { foreign: true }), stored("2"), stored("3")])
    const consumer = open(client)
    const seen: string[] = []
    await assert.rejects(async () => {
      for await (const message of consumer) seen.push(textOf(message))
    }, isDecodeError(1n))
    for await (const message of consumer) {
      seen.push(textOf(message))
      if (seen.length === 3) break
    }
    assert.deepEqual(seen, ["0", "2", "3"])
    await consumer.shutdown()
  })

  test("overlapping calls get what is theirs, each in its turn", async () => {
    const client = new FakeClient()
    const consumer = open(client)
    const calls = [consumer.next(), consumer.next(), consumer.next(), consumer.next()].map((call) =>
      call.then(
        ({ value }) => (value === undefined ? "end" : textOf(value)),
        (error: DecodeError) => `error at ${error.context.offset}`,
      ),
    )
    await client.settle()
    put(client, [stored("0"), stored("1", { foreign: true }), stored("2", { foreign: true }), stored("3")])
    assert.deepEqual(await Promise.all(calls), ["0", "error at 1", "error at 2", "3"])
    await consumer.shutdown()
  })

  test("`false` hands records out as they are stored, and another encryptor than the client's decrypts", async () => {
    const client = new FakeClient()
    const record = stored("0", { foreign: true })
    put(client, [record])
    const raw = open(client, { encryptor: false })
    assert.deepEqual((await take(raw, 1))[0]?.payload, record.payload)
    await raw.shutdown()
    const other = openConsumer(
      withEncryptor(client),
      { topic: client.topic, name: undefined, partition: 0 },
      { encryptor: theirs, startAt: { kind: "first" } },
    )
    assert.deepEqual(textsOf(await take(other, 1)), ["0"])
    await other.shutdown()
  })

  test("an option that is no encryptor is refused", () => {
    const client = new FakeClient()
    for (const wrong of [true, null, {}, "key", { current: "k" }]) {
      assert.throws(() => open(client, { encryptor: wrong as never }), InvalidError)
    }
  })

  test("no automatic store passes a record that did not decrypt and after which nothing was read", async () => {
    const kinds = fc.constantFrom("polling" as const, "all" as const, "each" as const)
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(fc.boolean(), { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 5 }),
        fc.nat(20),
        fc.record({ kind: kinds, batchLength: fc.integer({ min: 1, max: 6 }) }),
        async (batches, reads, { kind, batchLength }) => {
          const client = new FakeClient()
          for (const batch of batches)
            put(
              client,
              batch.map((good) => stored("r", { foreign: !good })),
            )
          const records = batches.flat()
          const consumer = open(client, { commitPolicy: { kind }, batchLength })
          const count = Math.min(reads, records.length)
          for (let n = 0; n < count; n++) {
            const outcome = await consumer.nextWithin(1000).then(
              () => true,
              (error) => {
                assert.ok(error instanceof DecodeError)
                return false
              },
            )
            assert.equal(outcome, records[n])
            await client.settle()
            assert.ok((client.storedNext("worker") ?? 0n) <= BigInt(n), "before the next read it is open")
          }
          await consumer.shutdown()
          const last = records[count - 1] === false ? count - 1 : count
          assert.equal(client.storedNext("worker") ?? 0n, BigInt(last))
        },
      ),
      { numRuns: 60 },
    )
  })
})

describe("a cursor under an encryptor", () => {
  test("gives a record that does not decrypt as an error in its place, and goes past it", async () => {
    const client = new FakeClient()
    put(client, [stored("0"), stored("1", { foreign: true }), stored("2")])
    const cursor = await openCursor(withEncryptor(client), client.topic)
    const results = await cursor.poll()
    assert.deepEqual(
      results.map((result) => (result.kind === "record" ? textOf(result.value) : result.kind)),
      ["0", "error", "2"],
    )
    const [, bad] = results
    assert.ok(bad?.kind === "error" && isDecodeError(1n)(bad.error))
    assert.deepEqual(bad?.kind === "error" && bad.position, { partition: 0, offset: 1n })
    assert.equal(cursor.offsets.get(0), 3n)
    await cursor[Symbol.asyncDispose]()
  })

  test("typed readers decode what was decrypted, and pass its errors on", async () => {
    const client = new FakeClient()
    put(client, [
      stored('{"n":1}'),
      stored("{}", { foreign: true }),
      stored(record({ payload: null })),
      stored("no JSON"),
    ])
    const codec = new Json((value) => value as { n: number })
    const reader = openTypedReader(withEncryptor(client), client.topic, { name: "r", codec })
    const kinds = (await reader.poll()).map((result) => (result.kind === "record" ? result.value.n : result.kind))
    assert.deepEqual(kinds, [1, "error", "tombstone", "error"])
    await reader[Symbol.asyncDispose]()
  })

  test("`false` gives records as they are stored", async () => {
    const client = new FakeClient()
    put(client, [stored("0")])
    const cursor = await openCursor(withEncryptor(client), client.topic, { encryptor: false })
    const result = await cursor.next()
    assert.ok(result.kind === "record" && result.value.payload?.[0] === 0xfa)
    await cursor[Symbol.asyncDispose]()
  })
})
