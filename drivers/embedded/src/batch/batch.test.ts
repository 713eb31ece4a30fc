import assert from "node:assert/strict"
import { describe, it } from "node:test"
import {
  CorruptionError,
  type HeaderKind,
  Headers,
  HeaderValue,
  headerKindCodes,
  InvalidError,
  type WireRecord,
} from "@millrace/contract"
import fc from "fast-check"
import { BatchBody } from "./batch-body.ts"
import { EmbeddedBatchWriter } from "./batch-writer.ts"
import { batchChecksum, bodyChecksum, type ChecksumPlace } from "./checksum.ts"
import type { EmbeddedBatch } from "./sealed-batch.ts"
import { newSlabPools } from "./slab.ts"

const target = { topic: { stream: "s", topic: "t" }, lineage: "1.1", partition: 0, durability: "synced" } as const
const stamp = { id: 0xabcdefn << 20n, timestampMicros: 1_700_000_000_000_000n, resend: false }
const pools = newSlabPools()

const bytes = fc.uint8Array({ maxLength: 200 })
const text = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((name) => name.isWellFormed())
const headerValue = fc
  .tuple(fc.constantFrom(...(Object.keys(headerKindCodes) as HeaderKind[])), fc.uint8Array({ maxLength: 16 }))
  .map(([kind, value]) => HeaderValue.fromBytes(headerKindCodes[kind], value))
const anyRecord: fc.Arbitrary<WireRecord> = fc.record(
  {
    payload: fc.option(bytes),
    key: fc.option(bytes),
    headers: fc.array(fc.tuple(text, headerValue), { maxLength: 4 }).map((entries) => Headers.from(entries)),
    id: fc.option(fc.bigInt({ min: 1n, max: 2n ** 128n - 1n }), { nil: undefined }),
    timestampMicros: fc.option(fc.bigInt({ min: 0n, max: 2n ** 62n }), { nil: undefined }),
  },
  { noNullPrototype: true },
)

function seal(records: readonly WireRecord[]): EmbeddedBatch {
  const writer = new EmbeddedBatchWriter(target, pools, { records: 10_000, bytes: 1 << 24 })
  for (const record of records) assert.ok(writer.tryAppend(record))
  return writer.seal(stamp)
}

/** A record in a form that compares: bytes as arrays, headers as pairs. */
function plain(record: WireRecord): unknown {
  return {
    payload: record.payload && [...record.payload],
    key: record.key && [...record.key],
    headers: [...record.headers].map(([name, value]) => [name, value.kind, [...value.bytes]]),
    id: record.id,
    timestampMicros: record.timestampMicros,
  }
}

function expected(record: WireRecord, index: number): unknown {
  const id = record.id ?? stamp.id + BigInt(index)
  return plain({ ...record, id, timestampMicros: record.timestampMicros ?? stamp.timestampMicros })
}

describe("a batch", () => {
  it("gives back every record as it was, from memory of its own", () => {
    fc.assert(
      fc.property(fc.array(anyRecord, { minLength: 1, maxLength: 30 }), (records) => {
        const batch = seal(records)
        const copies = batch.records()
        const { slab } = batch.content
        batch.release()
        slab.fill(0xee)
        assert.deepEqual(copies.map(plain), records.map(expected))
      }),
    )
  })

  it("tells names apart that stand at the same place, whatever their length, and whichever was read before", () => {
    const names = ["ab", "ac", "a", "ab", "é", "ab"]
    const value = HeaderValue.string("v")
    const plainRecord = { payload: null, key: null, id: undefined, timestampMicros: undefined }
    const records = names.map((name): WireRecord => ({ ...plainRecord, headers: Headers.from([[name, value]]) }))
    const batch = seal(records)
    const body = new BatchBody(batch.content.slab.buffer, batch.content.slab.byteOffset, batch.bytes)
    const read = (index: number): string[] => [...body.headers(index)].map(([name]) => name)
    assert.deepEqual(
      [5, 1, 4, 2, 0, 3].map((index) => read(index)[0]),
      ["ab", "ac", "é", "a", "ab", "ab"],
    )
  })

  it("splits into two that hold the same records with the same ids", () => {
    fc.assert(
      fc.property(fc.array(anyRecord, { minLength: 2, maxLength: 20 }), (records) => {
        const [left, right] = seal(records).split()
        assert.deepEqual([...left.records(), ...right.records()].map(plain), records.map(expected))
        assert.ok(left.count > 0 && right.count > 0)
        left.release()
        right.release()
      }),
    )
  })

  it("costs 5 bytes a record that has only a payload, and 32 bytes itself", () => {
    const record = {
      payload: new Uint8Array(100),
      key: null,
      headers: Headers.empty,
      id: undefined,
      timestampMicros: undefined,
    }
    assert.equal(seal(Array.from({ length: 50 }, () => record)).bytes, 32 + 50 * 105)
  })

  it("keeps null apart from empty, for payloads and keys", () => {
    const empty = new Uint8Array(0)
    const headers = Headers.from([
      ["a", "1"],
      ["b", HeaderValue.raw(empty)],
      ["a", "2"],
    ])
    const batch = seal([
      { payload: null, key: empty, headers, id: undefined, timestampMicros: undefined },
      { payload: empty, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined },
    ])
    const [first, second] = batch.records()
    assert.deepEqual([first?.payload, first?.key?.length, second?.payload?.length, second?.key], [null, 0, 0, null])
    assert.deepEqual(
      [...(first?.headers ?? [])].map(([name, value]) => [name, value.kind]),
      [
        ["a", "string"],
        ["b", "raw"],
        ["a", "string"],
      ],
    )
  })

  it("takes its first record whatever the limits, and no second one that passes them", () => {
    const writer = new EmbeddedBatchWriter(target, pools, { records: 3, bytes: 100 })
    const large = {
      payload: new Uint8Array(500),
      key: null,
      headers: Headers.empty,
      id: undefined,
      timestampMicros: undefined,
    }
    assert.equal(writer.tryAppend(large), true)
    assert.equal(writer.tryAppend({ ...large, payload: new Uint8Array(0) }), false)
    assert.equal(writer.count, 1)
    assert.equal(writer.seal(stamp).bytes, writer.bytes)
    assert.throws(() => writer.tryAppend(large), InvalidError)
  })

  it("refuses what its length fields cannot hold, and stays usable", () => {
    const writer = new EmbeddedBatchWriter(target, pools, { records: 10, bytes: 1 << 20 })
    const record = { payload: null, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined }
    assert.throws(() => writer.tryAppend({ ...record, key: new Uint8Array(65_536) }), { kind: "record-too-large" })
    assert.throws(() => writer.tryAppend({ ...record, headers: Headers.from([["n".repeat(256), "x"]]) }), {
      kind: "record-too-large",
    })
    assert.ok(writer.tryAppend(record))
    assert.equal(writer.seal(stamp).records().length, 1)
  })
})

describe("the bytes of a batch", () => {
  it("do not pass the checksum when any one of them is changed, nor at another place", () => {
    const batch = seal([
      {
        payload: new Uint8Array(40).fill(3),
        key: new Uint8Array(3),
        headers: Headers.from([["h", "v"]]),
        id: 5n,
        timestampMicros: 6n,
      },
      { payload: new Uint8Array(9), key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined },
    ])
    const body = new Uint8Array(batch.content.slab.subarray(0, batch.bytes))
    const place = { rowId: 7n, base: 40n, timestampMicros: 1n, count: 2 }
    const sumOf = (bytes: Uint8Array, at: ChecksumPlace): number =>
      batchChecksum({ checksum: bodyChecksum(bytes), length: bytes.length }, at)
    const sum = sumOf(body, place)
    assert.equal(bodyChecksum(body), batch.content.checksum)
    for (let at = 0; at < body.length; at++) {
      const changed = new Uint8Array(body)
      changed[at] = (changed[at] as number) ^ 0x40
      assert.notEqual(sumOf(changed, place), sum)
    }
    for (const other of [{ rowId: 8n }, { base: 41n }, { timestampMicros: 2n }, { count: 3 }])
      assert.notEqual(sumOf(body, { ...place, ...other }), sum)
  })

  it("give a typed error or an answer when they are cut short or arbitrary, never anything else", () => {
    const whole = seal([
      {
        payload: new Uint8Array(30),
        key: new Uint8Array(4),
        headers: Headers.from([["h", "v"]]),
        id: 9n,
        timestampMicros: 1n,
      },
    ])
    const body = new Uint8Array(whole.content.slab.subarray(0, whole.bytes))
    for (let length = 0; length < body.length; length++)
      assert.throws(() => new BatchBody(body.buffer as ArrayBuffer, 0, length), CorruptionError)
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(body.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 }),
        (changes) => {
          const changed = new Uint8Array(body)
          for (const [at, value] of changes) changed[at] = value
          readAll(changed)
        },
      ),
    )
  })
})

function readAll(bytes: Uint8Array): void {
  try {
    const body = new BatchBody(bytes.buffer, 0, bytes.length)
    for (let index = 0; index < body.count; index++) {
      body.payload(index)
      body.key(index)
      body.id(index)
      body.originTimeMicros(index)
      body.headers(index)
    }
  } catch (error) {
    assert.ok(["corruption", "decode"].includes((error as { kind: string }).kind), String(error))
  }
}

describe("slabs", () => {
  it("are used again, and not while an append is under way", () => {
    const own = newSlabPools()
    const writer = new EmbeddedBatchWriter(target, own, { records: 10, bytes: 1 << 20 })
    writer.tryAppend({ payload: null, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined })
    const batch = writer.seal(stamp)
    batch.pin()
    batch.release()
    assert.equal(own.sealed.freeBytes, 0)
    batch.unpin()
    assert.equal(own.sealed.freeBytes, batch.content.slab.length)
    assert.equal(own.sealed.take(10), batch.content.slab)
    assert.throws(() => batch.records(), InvalidError)
  })

  it("are kept up to a bound", () => {
    const { sealed } = newSlabPools()
    const taken = Array.from({ length: 5 }, () => sealed.take(8 << 20))
    for (const slab of taken) sealed.give(slab)
    assert.equal(sealed.freeBytes, 16 << 20)
  })
})
