import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { inspect } from "node:util"
import { CorruptionError, DecodeError, Headers, HeaderValue } from "@millrace/contract"
import { FakeBatch, type FakeRecord } from "../consumer/fake-log.test-support.ts"
import { BatchMessage, type MessageSource } from "./message.ts"
import { MessageBatch } from "./message-batch.ts"

const claim = { stream: "s", topic: "t", partition: 2, token: {} }

function message(record: FakeRecord, options: Partial<MessageSource> = {}): BatchMessage {
  const batch = new FakeBatch(7n, [record])
  return new BatchMessage(
    { batch, stream: "s", topic: "t", partition: 2, lineage: "a", claim, end: 12n, ...options },
    0,
  )
}

const full: FakeRecord = {
  payload: Uint8Array.of(1, 2, 3),
  key: new Uint8Array(0),
  headers: Headers.from([
    ["a", HeaderValue.uint64(2n ** 64n - 1n)],
    ["b", "x"],
    ["a", HeaderValue.raw(Uint8Array.of(9))],
  ]),
  id: 0x0123456789abcdef0123456789abcdefn,
  timestampMicros: 2n ** 62n + 1n,
}

describe("a message", () => {
  test("shows what the batch holds", () => {
    const one = message(full)
    assert.deepEqual(one.position, { partition: 2, offset: 7n })
    assert.deepEqual(one.payload, Uint8Array.of(1, 2, 3))
    assert.deepEqual(one.key, new Uint8Array(0))
    assert.equal(one.headers.size, 3)
    assert.equal(one.headers, one.headers, "decoded once")
    assert.equal(one.partitionHead, 11n)
    assert.deepEqual([one.stream, one.topic], ["s", "t"])
  })

  test("keeps a tombstone and an absent key apart from empty ones (A-17)", () => {
    const none = message({ payload: null, key: null })
    assert.deepEqual([none.payload, none.key], [null, null])
    const empty = message({ payload: new Uint8Array(0), key: new Uint8Array(0) })
    assert.deepEqual([empty.payload?.length, empty.key?.length], [0, 0])
  })

  test("with a malformed header block is marked, and the rest can be read", () => {
    const error = new DecodeError("cut short")
    const one = message({ ...full, headers: error })
    assert.equal(one.headersError, error)
    assert.equal(one.headers.size, 0)
    assert.equal(one.payload?.length, 3)
    assert.equal(one.toJSON().headersError, "cut short")
    assert.equal(one.copy().headersError, error)
  })

  test("with damage beyond that fails where it is looked at", () => {
    const one = message({ ...full, headers: new CorruptionError("torn") })
    assert.throws(() => one.headers, CorruptionError)
  })

  test("as JSON loses no digit and no byte (A-18)", () => {
    const json = JSON.parse(JSON.stringify(message(full)))
    assert.deepEqual(json, {
      stream: "s",
      topic: "t",
      partition: 2,
      offset: "7",
      id: "01234567-89ab-cdef-0123-456789abcdef",
      timestampMicros: "4611686018427387905",
      originTimestampMicros: null,
      checksum: null,
      partitionHead: "11",
      key: "",
      headers: [
        ["a", { kind: "uint64", value: "18446744073709551615" }],
        ["b", { kind: "string", value: "x" }],
        ["a", { kind: "raw", value: "09" }],
      ],
      payload: "AQID",
    })
    assert.equal(message({ payload: null }).toJSON().payload, null)
  })

  test("is shown decoded by console.log", () => {
    assert.match(inspect(message(full)), /offset: '7'/)
  })

  test("copied, has bytes of its own, and the same checkpoint", () => {
    const payload = Uint8Array.of(1, 2, 3)
    const one = message({ ...full, payload })
    const copy = one.copy()
    assert.deepEqual(copy.toJSON(), one.toJSON())
    payload.fill(0)
    assert.deepEqual(copy.payload, Uint8Array.of(1, 2, 3))
    assert.notEqual(copy.headers.get("b")?.bytes.buffer, one.headers.get("b")?.bytes.buffer)
    assert.deepEqual(copy.checkpoint(), one.checkpoint())
    assert.deepEqual(
      { ...one.checkpoint() },
      { stream: "s", topic: "t", partition: 2, offset: 7n, lineage: "a", claim },
    )
  })
})

test("a batch ends before a record that cannot be opened, whatever it fails with; alone it tells why", () => {
  const fault = new TypeError("not a cipher")
  let opened = 0
  const opener = {
    open() {
      if (++opened === 3) throw fault
      return undefined
    },
  }
  const source = { batch: new FakeBatch(7n, [full, full, full]), stream: "s", topic: "t", partition: 2, lineage: "a" }
  const batch = new MessageBatch({ ...source, claim, end: 12n, opener }, 0, 3)
  assert.deepEqual([batch.count, batch.lastOffset], [2, 8n])
  opened = 2
  assert.throws(() => new MessageBatch({ ...source, claim, end: 12n, opener }, 2, 3), fault)
})
