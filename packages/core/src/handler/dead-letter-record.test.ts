import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError, Headers, HeaderValue, type Manifest } from "@millrace/contract"
import fc from "fast-check"
import { FakeBatch, type FakeRecord } from "../consumer/fake-log.test-support.ts"
import { fakeManifest } from "../consumer/fake-session.test-support.ts"
import { BatchMessage } from "../record/message.ts"
import { type OutgoingRecord, prepareRecord } from "../record/outgoing-record.ts"
import { type Burial, deadLetterBlock, deadLetterRecord, errorTextBytes } from "./dead-letter-record.ts"

const { limits } = fakeManifest
const place = { stream: "s", topic: "t", partition: 3, offset: 2n ** 53n + 1n }

function message(record: FakeRecord, lineage = "a"): BatchMessage {
  const { offset, ...where } = place
  return new BatchMessage({ batch: new FakeBatch(offset, [record]), ...where, lineage, claim: undefined, end: 9n }, 0)
}

function burial(record: FakeRecord, given: Partial<Burial> = {}): Burial {
  return {
    place,
    message: message(record),
    content: "message",
    thrown: new RangeError("too far"),
    attempts: 3,
    timeMicros: 7n,
    consumer: undefined,
    group: "workers",
    ...given,
  }
}

const headersOf = (record: OutgoingRecord): Headers => record.headers as Headers
const namesOf = (record: OutgoingRecord): string[] => [...headersOf(record)].map(([name]) => name)

describe("a dead letter", () => {
  test("holds payload, key and headers byte for byte, and behind them the block", () => {
    const headers = Headers.from([
      ["a", HeaderValue.uint64(2n ** 64n - 1n)],
      ["millrace-ct", HeaderValue.uint8(1)],
      ["a", HeaderValue.raw(Uint8Array.of(0, 255))],
    ])
    const payload = Uint8Array.of(1, 2)
    const record = deadLetterRecord(burial({ payload, key: Uint8Array.of(9), headers, id: 5n }), 0, limits)
    assert.equal(record.payload, payload)
    assert.deepEqual(record.key, Uint8Array.of(9))
    assert.deepEqual(namesOf(record).slice(0, 4), ["a", "millrace-ct", "a", "millrace-dead-letter"])
    const block = deadLetterBlock(headersOf(record))
    assert.deepEqual(block?.headers.toJSON(), headers.toJSON())
    const { headers: _, ...rest } = block as NonNullable<typeof block>
    assert.deepEqual(rest, {
      origin: { stream: "s", topic: "t" },
      partition: 3,
      offset: 2n ** 53n + 1n,
      attempts: 3,
      kind: "RangeError",
      content: "message",
      error: "too far",
      consumer: undefined,
      group: "workers",
      queue: undefined,
      timeMicros: 7n,
    })
    assert.equal(headersOf(record).get("millrace-dead-id")?.value, 5n)
    prepareRecord(record, limits, { resend: true })
  })

  test("of a tombstone is a tombstone; an absent key stays absent, an empty one cannot be sent", () => {
    const tombstone = deadLetterRecord(burial({ payload: null, key: null }), 0, limits)
    assert.equal(tombstone.payload, null)
    assert.equal("key" in tombstone, false)
    assert.equal("key" in deadLetterRecord(burial({ payload: null, key: new Uint8Array(0) }), 0, limits), false)
  })

  test("says why headers are missing that could not be decoded", () => {
    const record = deadLetterRecord(burial({ payload: null, headers: new DecodeError("cut short") }), 0, limits)
    assert.equal(headersOf(record).get("millrace-dead-headers")?.value, "cut short")
  })

  test("of a topic without a stream, of what was never read, and of what has no text to tell, is a good record", () => {
    const bare = { stream: "", topic: "t", partition: 0, offset: undefined }
    const record = deadLetterRecord(
      burial({}, { place: bare, message: undefined, content: "none", thrown: "", attempts: 0, group: undefined }),
      0,
      limits,
    )
    const block = deadLetterBlock(headersOf(record))
    assert.deepEqual([block?.origin, block?.offset, block?.content], [{ stream: "", topic: "t" }, undefined, "none"])
    assert.equal(record.id, undefined)
    for (const [, value] of headersOf(record))
      assert.ok(value.bytes.length > 0, "no backend has to keep an empty value")
  })

  test("that fails again elsewhere has two blocks, and the last one counts", () => {
    const first = deadLetterRecord(burial({ payload: null, headers: Headers.from({ own: "x" }) }), 0, limits)
    const again = message({ payload: null, headers: headersOf(first) })
    const second = deadLetterRecord(
      burial({}, { message: again, place: { ...place, topic: "dead" }, attempts: 1 }),
      0,
      limits,
    )
    const outer = deadLetterBlock(headersOf(second))
    assert.equal(outer?.origin.topic, "dead")
    const inner = deadLetterBlock(outer?.headers as Headers)
    assert.equal(inner?.origin.topic, "t")
    assert.deepEqual(inner?.headers.toJSON(), Headers.from({ own: "x" }).toJSON())
  })

  test("is found behind trace context that stays readable beside an encrypted record", () => {
    const record = deadLetterRecord(burial({ payload: null }), 0, limits)
    const joined = Headers.ofStored([...headersOf(record), ["traceparent", HeaderValue.string("00-1")]])
    assert.deepEqual(
      Array.from(deadLetterBlock(joined)?.headers ?? [], ([name]) => name),
      ["traceparent"],
    )
  })

  test("has one id each time, and another for another consumer, history or offset", () => {
    const id = (given: Partial<Burial>): bigint | undefined =>
      deadLetterRecord(burial({ payload: null }, given), 0, limits).id
    const ids = [
      id({}),
      id({ group: "others" }),
      id({ group: undefined, consumer: "workers" }),
      id({ message: message({ payload: null }, "b") }),
    ]
    assert.equal(id({ attempts: 9, timeMicros: 99n, thrown: 1 }), ids[0])
    assert.equal(new Set(ids).size, ids.length)
  })

  test("a record that is none has no block", () => {
    assert.equal(deadLetterBlock(Headers.empty), undefined)
    assert.equal(deadLetterBlock(Headers.from({ "millrace-dead-letter": "1" })), undefined)
    assert.equal(deadLetterBlock(Headers.from({ "millrace-dead-letter": HeaderValue.uint8(2) })), undefined)
    assert.equal(deadLetterBlock(Headers.from({ "millrace-dead-letter": HeaderValue.uint8(1) })), undefined)
  })
})

describe("what does not fit", () => {
  test("is shortened to the limit of a header value, at a character", () => {
    const narrow: Manifest["limits"] = { ...limits, headerValueBytes: 255 }
    const record = deadLetterRecord(burial({ payload: null }, { thrown: new Error("ü".repeat(1000)) }), 0, narrow)
    const error = headersOf(record).get("millrace-dead-error")
    assert.ok((error?.bytes.length ?? 999) <= 255)
    assert.match(error?.value as string, /^ü+…$/)
    prepareRecord(record, narrow, { resend: true })
  })

  test("is less at each step; the last one says that it is cut and has what the way back needs", () => {
    const sizes = errorTextBytes.map((_, step) => {
      const record = deadLetterRecord(
        burial({ payload: null, id: 5n }, { thrown: new Error("x".repeat(5000)) }),
        step,
        limits,
      )
      return [...headersOf(record)].reduce((sum, [name, value]) => sum + name.length + value.bytes.length, 0)
    })
    assert.deepEqual(
      sizes,
      [...sizes].sort((a, b) => b - a),
    )
    const least = deadLetterRecord(burial({ payload: null }), errorTextBytes.length - 1, limits)
    assert.equal(headersOf(least).get("millrace-dead-cut")?.value, true)
    const block = deadLetterBlock(headersOf(least))
    assert.deepEqual([block?.origin.topic, block?.partition, block?.attempts, block?.kind], ["t", 3, 3, "RangeError"])
  })

  test("any text of any error, under any limit, makes headers within it", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 2000 }), fc.integer({ min: 64, max: 2000 }), (text, most) => {
        const narrow: Manifest["limits"] = { ...limits, headerValueBytes: most }
        const record = deadLetterRecord(burial({ payload: null }, { thrown: new Error(text) }), 0, narrow)
        for (const [, value] of headersOf(record)) assert.ok(value.bytes.length > 0 && value.bytes.length <= most)
      }),
    )
  })
})
