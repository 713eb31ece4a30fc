import assert from "node:assert/strict"
import { test } from "node:test"
import {
  CorruptionError,
  DecodeError,
  Headers,
  InvalidError,
  MillraceError,
  RecordTooLargeError,
  UnsupportedError,
  type WireRecord,
} from "@millrace/contract"
import { SlabPool } from "@millrace/runtime"
import fc from "fast-check"
import type { CodecName } from "../compression/codecs.ts"
import { place, sealed, writerOf } from "./batch-text.test-support.ts"
import { crc32c } from "./checksum.ts"
import { KafkaEncodedBatch } from "./encoded-batch.ts"
import { readBatches } from "./read-batches.ts"

const codecs: readonly CodecName[] = ["none", "gzip", "snappy", "lz4", "zstd"]
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)
const plain: WireRecord = {
  payload: bytesOf("payload"),
  key: null,
  headers: Headers.empty,
  id: undefined,
  timestampMicros: undefined,
}
const stamp = { id: 1n << 64n, timestampMicros: 1_700_000_000_123_456n, resend: false }

test("the bytes of a batch are those of the format", () => {
  const batch = sealed(
    [
      { ...plain, key: bytesOf("k") },
      { ...plain, payload: null },
    ],
    { micros: 1_600_000_000_000_999n },
  )
  const bytes = Buffer.from(batch.stamp({ producerId: 258n, epoch: 7, sequence: 9 }))
  const crc = bytes.readUInt32BE(17).toString(16).padStart(8, "0")
  assert.equal(
    bytes.toString("hex"),
    [
      "0000000000000000", // base offset
      "00000047", // length
      "ffffffff", // leader epoch
      "02", // magic
      crc,
      "0000", // attributes
      "00000001", // last offset delta
      "00000174876e8000", // base timestamp
      "00000174876e8000", // largest timestamp
      "0000000000000102", // producer id
      "0007", // producer epoch
      "00000009", // sequence
      "00000002", // count
      "1c00000002" + "6b" + "0e" + "7061796c6f6164" + "00", // null is 01, and an empty list 00
      "0c000002" + "01" + "01" + "00",
    ].join(""),
  )
  assert.equal(bytes.readUInt32BE(17), crc32c(bytes.subarray(21)))
})

test("an answer false or a refusal leaves the batch as it was", () => {
  const writer = writerOf({ records: 3, bytes: 200, recordBytes: 200 })
  assert.equal(writer.tryAppend(plain), true)
  const { bytes } = writer
  assert.equal(writer.tryAppend({ ...plain, payload: new Uint8Array(130) }), false)
  assert.throws(
    () => writer.tryAppend({ ...plain, payload: new Uint8Array(140) }),
    (error) =>
      error instanceof RecordTooLargeError && error.context.limitBytes === 200 && Number(error.context.sizeBytes) > 200,
  )
  assert.deepEqual([writer.count, writer.bytes], [1, bytes])
  assert.ok(writer.tryAppend(plain) && writer.tryAppend(plain))
  assert.equal(writer.tryAppend(plain), false)
  assert.equal(writer.seal(stamp).count, 3)
  assert.throws(() => writer.tryAppend(plain), InvalidError)
  // The first record is taken whatever its size.
  assert.equal(writerOf({ bytes: 100 }).tryAppend({ ...plain, payload: new Uint8Array(500) }), true)
})

test("a batch never outgrows its limit when its times are told", () => {
  const limit = 400
  fc.assert(
    fc.property(
      fc.array(fc.option(fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n }), { nil: undefined })),
      (times) => {
        const writer = writerOf({ bytes: limit })
        const taken = times.filter((timestampMicros) => writer.tryAppend({ ...plain, payload: null, timestampMicros }))
        if (taken.length === 0) return
        const batch = writer.seal(stamp)
        assert.ok(batch.bytes <= limit, `${batch.bytes}`)
        const read = new KafkaEncodedBatch(Buffer.from(batch.stamp()), place)
        for (const [i, micros] of taken.entries()) {
          const wanted = micros ?? stamp.timestampMicros
          const millis = wanted / 1000n - (wanted < 0n && wanted % 1000n !== 0n ? 1n : 0n)
          assert.equal(read.timestampMicros(i), millis * 1000n)
        }
      },
    ),
  )
})

test("an identity is stamped again without encoding again", () => {
  const batch = sealed([plain])
  const first = Buffer.from(batch.stamp({ producerId: 1n, epoch: 2, sequence: 3 }))
  assert.equal(Buffer.compare(first, batch.stamp({ producerId: 1n, epoch: 2, sequence: 3 })), 0)
  const second = new KafkaEncodedBatch(
    Buffer.from(batch.stamp({ producerId: 1n, epoch: 3, sequence: 0, transactional: true })),
    place,
  )
  assert.deepEqual(
    [second.producerId, second.producerEpoch, second.baseSequence, second.transactional],
    [1n, 3, 0, true],
  )
  const third = new KafkaEncodedBatch(Buffer.from(batch.stamp()), place)
  assert.deepEqual(
    [third.producerId, third.producerEpoch, third.baseSequence, third.transactional],
    [-1n, -1, -1, false],
  )
  assert.equal(Buffer.compare(third.payload(0) ?? new Uint8Array(0), bytesOf("payload")), 0)
})

test("records come back from a sealed batch, and its halves hold the same ones", () => {
  for (const codec of codecs) {
    const given = Array.from({ length: 7 }, (_, i) => ({
      payload: i === 3 ? null : bytesOf(`payload ${i} `.repeat(9)),
      key: i === 2 ? null : bytesOf(`k${i}`),
      headers: i === 1 ? Headers.from({ a: "x" }) : Headers.empty,
      id: i === 4 ? 99n : undefined,
      timestampMicros: i === 5 ? 1_000_000n : undefined,
    }))
    const batch = sealed(given, { codec, micros: stamp.timestampMicros })
    const records = batch.records()
    assert.deepEqual(
      records,
      given.map((record, i) => ({
        ...record,
        payload: records[i]?.payload,
        key: records[i]?.key,
        headers: record.headers.size === 0 ? Headers.empty : records[i]?.headers,
        id: record.id ?? stamp.id + BigInt(i),
        timestampMicros: record.timestampMicros ?? 1_700_000_000_123_000n,
      })),
    )
    for (const [i, { payload, key }] of records.entries()) {
      assert.deepEqual(
        payload && Buffer.from(payload).toString(),
        given[i]?.payload && Buffer.from(given[i].payload).toString(),
      )
      assert.deepEqual(key && Buffer.from(key).toString(), given[i]?.key && Buffer.from(given[i].key).toString())
    }
    const halves = batch.split()
    const again = halves.flatMap((half) => half.records())
    assert.deepEqual(
      again.map(({ id, timestampMicros }) => [id, timestampMicros]),
      records.map(({ id, timestampMicros }) => [id, timestampMicros]),
    )
    assert.deepEqual(
      again.map(({ payload }) => payload && Buffer.from(payload)),
      records.map(({ payload }) => payload && Buffer.from(payload)),
    )
    assert.throws(() => batch.records(), InvalidError)
    assert.throws(() => sealed([plain]).split(), InvalidError)
  }
})

test("a slab is used again only when nobody sends from it any more", () => {
  const pool = new SlabPool()
  const writer = writerOf({}, pool)
  writer.tryAppend(plain)
  const batch = writer.seal(stamp)
  batch.pin()
  batch.release()
  batch.release()
  assert.equal(pool.freeBytes, 0)
  batch.unpin()
  assert.equal(pool.freeBytes, 4096)
  assert.throws(() => batch.stamp(), InvalidError)
  assert.throws(() => batch.pin(), InvalidError)
})

test("several batches are read one behind the other, and a cut last one is dropped", () => {
  const one = stored([plain, plain], 10n)
  const two = stored([plain], 12n)
  const whole = Buffer.concat([one, two])
  assert.deepEqual(
    read(whole).batches.map((batch) => [batch.firstOffset, batch.lastOffset, batch.nextOffset]),
    [
      [10n, 11n, 12n],
      [12n, 12n, 13n],
    ],
  )
  for (let length = one.length; length < whole.length; length++)
    assert.equal(read(whole.subarray(0, length)).batches.length, 1)
  assert.deepEqual(read(Buffer.alloc(0)), { batches: [], error: undefined })
})

test("an answer that holds far more than it has bytes is read in parts", () => {
  const large = Buffer.from(sealed([{ ...plain, payload: new Uint8Array(20 << 20) }], { codec: "zstd" }).stamp())
  const { batches, error } = read(Buffer.concat([large, large, large, large]))
  assert.ok(large.length < 10_000)
  assert.deepEqual([batches.length, error], [2, undefined])
})

test("the first batch cut short is an error, since no broker does that", () => {
  const whole = stored([plain], 0n)
  for (let length = 17; length < whole.length; length++) {
    const { batches, error } = read(whole.subarray(0, length))
    assert.ok(batches.length === 0 && error instanceof MillraceError && error.kind === "protocol")
  }
})

test("an altered byte behind the checksum is found, and the batches before it are kept", () => {
  const good = stored([plain], 0n)
  const bad = stored([plain, plain], 1n)
  for (let i = 17; i < bad.length; i++) {
    const altered = Buffer.from(bad)
    altered[i] = (altered[i] as number) ^ 4
    const { batches, error } = read(Buffer.concat([good, altered]))
    assert.equal(batches.length, 1)
    assert.ok(
      error instanceof CorruptionError && error.context.offset === 1n && /offset 1 of partition 1/.test(error.message),
      `byte ${i}`,
    )
  }
})

test("lengths that cannot be are errors", () => {
  for (const length of [-1, -0x80000000, 0, 4, 5, 48]) {
    const bytes = stored([plain], 3n)
    bytes.writeInt32BE(length, 8)
    assert.ok(read(bytes).error instanceof CorruptionError, `${length}`)
  }
  const huge = stored([plain], 3n)
  huge.writeInt32BE(0x7fffffff, 8)
  assert.ok((read(huge).error as MillraceError).kind === "protocol")
})

test("old formats and unknown codecs are named", () => {
  const old = stored([plain], 3n)
  old[16] = 1
  const { error } = read(old)
  assert.ok(error instanceof UnsupportedError && /offset 3 .*format 1/.test(error.message))
  const odd = stored([plain], 4n, (bytes) => bytes.writeInt16BE(6, 21))
  const unknown = read(odd).error
  assert.ok(unknown instanceof UnsupportedError && /offset 4 .*codec 6/.test(unknown.message))
  odd[16] = 9
  assert.ok(read(odd).error instanceof CorruptionError)
})

test("compressed records that do not decompress are corrupt, and the codec is named", () => {
  for (const [codec, code] of [
    ["gzip", 1],
    ["snappy", 2],
    ["lz4", 3],
    ["zstd", 4],
  ] as const) {
    const { error } = read(stored([plain, plain, plain], 8n, (bytes) => bytes.writeInt16BE(code, 21)))
    assert.ok(
      error instanceof CorruptionError && error.message.includes(codec) && error.context.offset === 8n,
      String(error),
    )
  }
})

test("counts and lengths inside that contradict the bytes are corrupt", () => {
  const alterations: ((bytes: Buffer) => void)[] = [
    (bytes) => bytes.writeInt32BE(-1, 57),
    (bytes) => bytes.writeInt32BE(1, 57),
    (bytes) => bytes.writeInt32BE(3, 57),
    (bytes) => bytes.writeInt32BE(0x7fffffff, 57),
    (bytes) => bytes.writeInt32BE(0, 23),
    (bytes) => bytes.writeInt32BE(-5, 23),
    (bytes) => bytes.fill(0xff, 61),
    (bytes) => bytes.fill(0, 61),
    // The key of the first record: longer than the record, and a negative number that is not null's.
    (bytes) => bytes.fill(0x7e, 65, 66),
    (bytes) => bytes.fill(0x03, 65, 66),
  ]
  for (const [i, alter] of alterations.entries()) {
    assert.ok(read(stored([plain, plain], 8n, alter)).error instanceof CorruptionError, `alteration ${i}`)
  }
})

test("an error of a batch tells where reading goes on behind it, as far as that can be trusted", () => {
  const next = (error: unknown): unknown => (error as MillraceError).context.nextOffset
  const unreadable = stored([plain, plain, plain], 8n, (bytes) => bytes.writeInt16BE(1, 21))
  assert.equal(next(read(unreadable).error), 11n, "its header is what the producer wrote")
  const altered = stored([plain, plain, plain], 8n)
  altered[30] = 0x7f
  assert.equal(next(read(altered).error), undefined, "its header may be what was altered")
  const behind = stored([plain], 15n)
  const { batches, error } = read(Buffer.concat([stored([plain], 7n), altered, behind]))
  assert.equal(batches.length, 1)
  assert.deepEqual([(error as MillraceError).context.offset, next(error)], [8n, 15n])
  assert.equal(
    next(read(Buffer.concat([altered, stored([plain], 3n)])).error),
    undefined,
    "the next one lies no further",
  )
})

test("a malformed block of headers leaves the rest of its record readable", () => {
  const bytes = stored([{ ...plain, headers: Headers.from({ name: "value" }) }], 0n, (batch) => {
    batch[batch.length - 12] = 0x70
  })
  const [batch] = read(bytes).batches
  assert.ok(batch !== undefined)
  assert.throws(() => batch.headers(0), DecodeError)
  assert.throws(() => batch.id(0), DecodeError)
  assert.equal(Buffer.from(batch.payload(0) ?? []).toString(), "payload")
})

test("an offset is found among holes", () => {
  // Compaction leaves the deltas as they were and the last one in the header: 0, 2, 6, of 8.
  const bytes = stored([plain, plain, plain], 100n, (batch) => {
    const size = (batch.length - 61) / 3
    for (const [i, delta] of [0, 2, 6].entries()) batch[61 + i * size + 3] = delta * 2
    batch.writeInt32BE(8, 23)
  })
  const [batch] = read(bytes).batches
  assert.ok(batch !== undefined)
  assert.deepEqual([batch.offset(0), batch.offset(1), batch.offset(2)], [100n, 102n, 106n])
  assert.deepEqual([batch.firstOffset, batch.lastOffset, batch.nextOffset], [100n, 106n, 109n])
  const found = [0n, 100n, 101n, 102n, 103n, 106n, 107n, 109n, 1n << 60n].map((offset) => batch.indexOf(offset))
  assert.deepEqual(found, [0, 0, 1, 1, 2, 2, 3, 3, 3])
  assert.throws(() => batch.payload(3), RangeError)
  assert.throws(() => batch.payload(-1), RangeError)
})

test("a batch that compaction has emptied still tells where it ends", () => {
  const bytes = stored([plain], 40n).subarray(0, 61)
  bytes.writeInt32BE(49, 8)
  bytes.writeInt32BE(0, 57)
  bytes.writeInt32BE(4, 23)
  bytes.writeUInt32BE(crc32c(bytes.subarray(21)), 17)
  const [batch] = read(bytes).batches
  assert.deepEqual(
    [batch?.count, batch?.firstOffset, batch?.lastOffset, batch?.nextOffset, batch?.indexOf(42n)],
    [0, 40n, 44n, 45n, 0],
  )
})

test("random and altered batches with a right checksum are refused or read, and nothing else", () => {
  for (const codec of codecs) {
    const records = Array.from({ length: 6 }, (_, i) => ({
      ...plain,
      key: bytesOf(`k${i}`),
      headers: Headers.from({ a: `${i}` }),
    }))
    const whole = Buffer.from(sealed(records, { codec }).stamp())
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.integer({ min: 21, max: whole.length - 1 }), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        (changes) => {
          const altered = Buffer.from(whole)
          for (const [at, value] of changes) altered[at] = value
          altered.writeUInt32BE(crc32c(altered.subarray(21)), 17)
          const { batches, error } = read(altered)
          assert.ok(
            error === undefined || error instanceof CorruptionError || error instanceof UnsupportedError,
            String(error),
          )
          for (const batch of batches) {
            for (let i = 0; i < batch.count; i++) {
              batch.payload(i)
              batch.key(i)
              batch.timestampMicros(i)
              assert.equal(batch.indexOf(batch.offset(i)), i)
              try {
                batch.headers(i)
              } catch (cause) {
                if (!(cause instanceof DecodeError)) throw cause
              }
            }
          }
        },
      ),
      { numRuns: 150 },
    )
  }
  fc.assert(fc.property(fc.uint8Array({ maxLength: 120 }), (bytes) => void read(Buffer.from(bytes))))
})

function read(bytes: Buffer): ReturnType<typeof readBatches> {
  return readBatches(bytes, place)
}

/** A batch as a broker stores it, altered before its checksum is taken. */
function stored(records: readonly WireRecord[], base: bigint, alter?: (bytes: Buffer) => void): Buffer {
  const bytes = Buffer.from(sealed(records).stamp())
  bytes.writeBigInt64BE(base)
  alter?.(bytes)
  bytes.writeUInt32BE(crc32c(bytes.subarray(21)), 17)
  return bytes
}
