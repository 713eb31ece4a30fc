import assert from "node:assert/strict"
import { test } from "node:test"
import { Headers, HeaderValue, type WireRecord } from "@millrace/contract"
import { MsgHdrsImpl, headers as natsHeaders } from "@nats-io/nats-core/internal"
import fc from "fast-check"
import { decodeRecord, headerLines, preamble, type RecordParts, tellsNull } from "./header-block.ts"

const bytes = (text: string): Buffer => Buffer.from(text, "utf8")
const record = (parts: Partial<WireRecord>): WireRecord => ({
  payload: bytes("p"),
  key: null,
  headers: Headers.empty,
  id: undefined,
  timestampMicros: undefined,
  ...parts,
})
const block = (lines: string): Buffer => bytes(`${preamble}${lines}\r\n`)
const decoded = (lines: string): RecordParts => decodeRecord(block(lines))
const shown = (headers: Headers): unknown[] => [...headers].map(([name, value]) => [name, value.kind, value.value])

test("a record without anything but a payload has no lines", () => {
  assert.equal(headerLines(record({})), "")
})

test("texts of one line are left plain, in order and with repeated names", () => {
  const headers = Headers.from([
    ["b", "2"],
    ["a", "ünïcode 🌊"],
    ["b", ""],
    ["B", "1: 2"],
  ])
  assert.equal(headerLines(record({ headers })), "b: 2\r\na: ünïcode 🌊\r\nb: \r\nB: 1: 2\r\n")
})

test("what a client would change or the server would read is in base64, and said to be", () => {
  const headers = Headers.from([
    ["n", HeaderValue.int16(258)],
    ["lines", "a\r\nNats-Msg-Id: evil"],
    ["space", " x"],
    ["Nats-Msg-Id", "evil"],
    ["a b", HeaderValue.raw(Uint8Array.of(255))],
  ])
  assert.equal(
    headerLines(record({ headers })),
    [
      "millrace-types: 52221 11123\r\n",
      "n: AgE=\r\n",
      "lines: YQ0KTmF0cy1Nc2ctSWQ6IGV2aWw=\r\n",
      "space: IHg=\r\n",
      "millrace-name-TmF0cy1Nc2ctSWQ: evil\r\n",
      "millrace-name-YSBi: /w==\r\n",
    ].join(""),
  )
})

test("key, absent payload and the sender's time have lines of their own", () => {
  const lines = headerLines(record({ payload: null, key: Uint8Array.of(0, 255), timestampMicros: 17n }))
  assert.equal(lines, "millrace-null: 1\r\nmillrace-key: AP8=\r\nmillrace-time: 17\r\n")
  const back = decoded(lines)
  assert.equal(back.nullPayload, true)
  assert.deepEqual(back.key, Uint8Array.of(0, 255))
  assert.equal(back.originTimestampMicros, 17n)
  assert.equal(back.headers().size, 0)
})

test("an empty key is not an absent one", () => {
  assert.deepEqual(decoded(headerLines(record({ key: new Uint8Array(0) }))).key, new Uint8Array(0))
  assert.equal(decoded("").key, null)
})

const anyValue = fc.oneof(
  fc.uint8Array({ maxLength: 40 }).map((value) => HeaderValue.raw(value)),
  fc.string({ unit: "binary", maxLength: 40 }).map((value) => HeaderValue.string(value.toWellFormed())),
  fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }).map((value) => HeaderValue.uint128(value)),
  fc.boolean().map((value) => HeaderValue.bool(value)),
)
const anyHeaderName = fc.oneof(
  fc.string({ unit: "binary", minLength: 1, maxLength: 30 }).filter((name) => name.isWellFormed()),
  fc.constantFrom(
    "Nats-Msg-Id",
    "nats-rollup",
    "Nats-Batch-Id",
    "Nats-Sequence",
    "millrace-key",
    "millrace-null",
    "millrace-types",
    "millrace-name-x",
    "millrace-schema",
    "A",
    "a",
    "x:y",
  ),
)

test("any headers come back as they were: names, kinds, bytes, order and repetition", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(anyHeaderName, anyValue), { maxLength: 6 }), (entries) => {
      const lines = headerLines(record({ headers: Headers.from(entries) }))
      const back = [...decoded(`Nats-Msg-Id: 01a228ba-f7de-7000-8000-000000100000\r\n${lines}`).headers()]
      assert.deepEqual(
        back.map(([name]) => name),
        entries.map(([name]) => name),
      )
      for (const [index, [, value]] of back.entries()) assert.ok(value.equals(entries[index]?.[1] as HeaderValue))
    }),
    { numRuns: 500 },
  )
})

test("no header of a record can be read by the server as one of its own", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(anyHeaderName, anyValue), { maxLength: 6 }), (entries) => {
      for (const line of headerLines(record({ headers: Headers.from(entries) })).split("\r\n")) {
        assert.doesNotMatch(line, /[\r\n]/)
        assert.doesNotMatch(line, /^nats-/i)
      }
    }),
  )
})

test("nats.js reads plain headers as they were, and nothing breaks its parser", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(anyHeaderName, anyValue), { minLength: 1, maxLength: 6 }), (entries) => {
      const seen = MsgHdrsImpl.decode(block(headerLines(record({ headers: Headers.from(entries) }))))
      assert.ok(seen.keys().length > 0)
    }),
  )
  const lines = headerLines(
    record({
      headers: Headers.from([
        ["trace", "a b"],
        ["trace", "é"],
      ]),
    }),
  )
  assert.deepEqual(MsgHdrsImpl.decode(block(lines)).values("trace"), ["a b", "é"])
})

test("headers of other clients are texts as they were written, and an id that is no UUID is one of them", () => {
  const theirs = natsHeaders()
  theirs.append("Content-Type", "text/plain")
  theirs.append("Nats-Msg-Id", "order-17")
  theirs.append("content-type", "x")
  theirs.append("Content-Type", "again")
  const parts = decodeRecord((theirs as MsgHdrsImpl).encode())
  assert.equal(parts.id, undefined)
  assert.deepEqual(shown(parts.headers()), [
    ["Content-Type", "string", "text/plain"],
    ["Content-Type", "string", "again"],
    ["Nats-Msg-Id", "string", "order-17"],
    ["content-type", "string", "x"],
  ])
})

test("a UUID of another client is an id, and no header", () => {
  const parts = decoded("Nats-Msg-Id:01A228BA-F7DE-7000-8000-000000100000\r\nx:1\r\n")
  assert.equal(parts.id, 0x01a228ba_f7de_7000_8000_000000100000n)
  assert.deepEqual(shown(parts.headers()), [["x", "string", "1"]])
  assert.equal(decoded("Nats-Msg-Id: 00000000-0000-0000-0000-000000000000\r\n").id, undefined)
})

test("what the server adds to a message is no header of the record", () => {
  const parts = decoded(
    "Nats-Batch-Id: x\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\nNats-Stream: S\r\nNats-Sequence: 7\r\nNats-TTL: 1h\r\n",
  )
  assert.deepEqual(shown(parts.headers()), [["Nats-TTL", "string", "1h"]])
})

test("headers that contradict themselves are a DecodeError, and the rest of the record stays readable", () => {
  const broken = [
    "no colon\r\n",
    "millrace-types: 22\r\na: 1\r\n",
    "millrace-types: g\r\na: 1\r\n",
    "millrace-types: 2 9\r\na: 1\r\n",
    "millrace-types: 2 2\r\na: 1\r\n",
    "millrace-types: 1\r\na: not base64!\r\n",
    "millrace-types: 1\r\n",
  ]
  for (const lines of broken) {
    const parts = decoded(`millrace-key: aw==\r\n${lines}`)
    assert.throws(() => parts.headers(), { kind: "decode" }, lines)
    assert.deepEqual(parts.key, Uint8Array.of(0x6b))
    assert.equal(parts.nullPayload, false)
  }
  assert.throws(() => decoded("millrace-key: %%\r\n").key, { kind: "decode" })
  assert.throws(() => decoded("millrace-time: soon\r\n").originTimestampMicros, { kind: "decode" })
})

const anyBlock = fc.oneof(
  fc
    .array(
      fc.oneof(
        fc.string({ unit: "binary", maxLength: 20 }),
        fc.constantFrom(
          ...["\r\n", "\r", "\n", "Nats-Msg-Id:", "millrace-types: 22", "millrace-key: ", "a: b", "NATS/1.0 503"],
          ...["millrace-null: 1", "\r\nmillrace-null:", "\r\nmillrace-null"],
        ),
      ),
      { maxLength: 10 },
    )
    .map((some) => bytes(some.join(""))),
  fc.uint8Array({ maxLength: 80 }),
)

test("an absent payload is told alike by the quick look and by the whole reading, whatever comes behind the block", () => {
  const null0 = block("Nats-Msg-Id: x\r\nmillrace-null: 1\r\n")
  assert.equal(tellsNull(null0, null0.length), true)
  assert.equal(decodeRecord(null0).nullPayload, true)
  fc.assert(
    fc.property(anyBlock, fc.uint8Array({ maxLength: 20 }), (some, payload) => {
      const raw = Buffer.concat([some, payload])
      assert.equal(tellsNull(raw, some.length), decodeRecord(some).nullPayload)
    }),
    { numRuns: 5_000 },
  )
})

test("any bytes are read or refused, never anything else", () => {
  fc.assert(
    fc.property(anyBlock, (some) => {
      const parts = decodeRecord(some)
      for (const look of [() => parts.headers(), () => parts.key, () => parts.id, () => parts.originTimestampMicros]) {
        try {
          look()
        } catch (error) {
          assert.equal((error as { kind?: string }).kind, "decode", String(error))
        }
      }
    }),
    { numRuns: 500 },
  )
})
