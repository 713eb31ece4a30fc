import assert from "node:assert/strict"
import { describe, it } from "node:test"
import {
  type BatchStamp,
  CorruptionError,
  Headers,
  HeaderValue,
  MillraceError,
  type WireRecord,
} from "@millrace/contract"
import { SlabPool } from "@millrace/runtime"
import { xxh3 } from "@node-rs/xxhash"
import fc from "fast-check"
import { exchange, exchanges } from "../codec/exchanges.test-support.ts"
import { sendMessages } from "../codec/message-commands.ts"
import { polled, type SendMessages } from "../codec/message-structures.ts"
import { ByteReader } from "../wire/byte-reader.ts"
import { headerBytes } from "../wire/header.ts"
import { readReply } from "../wire/reply.ts"
import { IggyBatchWriter, type WriterLimits } from "./batch-writer.ts"
import { batchChecksum, messageChecksums } from "./checksum.ts"
import { readBatch, readBatches } from "./encoded-batch.ts"
import { batchAt } from "./layout.ts"
import type { IggySealedBatch } from "./sealed-batch.ts"

const target = { topic: { stream: "orders", topic: "events" }, lineage: "1", partition: 0 }
const stamp: BatchStamp = {
  id: 0x0190_0000_0000_7000_8000_0000_0010_0000n,
  timestampMicros: 1_764_288_000_000_000n,
  resend: false,
}
const roomy: WriterLimits = { records: 1000, bytes: 1 << 20 }

function record(part: Partial<WireRecord> = {}): WireRecord {
  return {
    payload: Buffer.from("x"),
    key: null,
    headers: Headers.empty,
    id: undefined,
    timestampMicros: undefined,
    ...part,
  }
}

function seal(records: readonly WireRecord[], pool = new SlabPool()): IggySealedBatch {
  const writer = new IggyBatchWriter(target, pool, roomy)
  for (const one of records) assert.ok(writer.tryAppend(one))
  return writer.seal(stamp)
}

/** The request as the server's side reads it. */
function sent(batch: IggySealedBatch): SendMessages {
  const reader = new ByteReader(Buffer.from(batch.frame.subarray(headerBytes)), "send_messages")
  return sendMessages.request.read(reader, "0.11")
}

/** As the server's poll would answer. */
function readBack(batch: IggySealedBatch) {
  const [read, ...others] = readBatches(sent(batch).batch)
  assert.ok(read !== undefined && others.length === 0)
  return read
}

describe("batches that other clients sent", () => {
  const sends = exchanges.filter((one) => one.file === "send_messages" && one.response.length > headerBytes)
  for (const { name, request } of sends) {
    // The writer gives every message an id, and names headers by text alone; that recording has a header named by a number.
    if (name === "zero_id_accepted" || name === "user_headers_every_kind") continue
    it(`${name}: our writer makes the same bytes of the same messages`, () => {
      const query = sendMessages.request.read(new ByteReader(request.subarray(headerBytes), name), "0.11")
      const [read] = readBatches(query.batch)
      assert.ok(read)
      const writer = new IggyBatchWriter(target, new SlabPool(), roomy)
      for (let i = 0; i < read.count; i++) {
        assert.ok(
          writer.tryAppend({
            payload: read.payload(i),
            key: null,
            headers: read.headers(i),
            id: read.id(i),
            timestampMicros: read.originTimestampMicros(i),
          }),
        )
      }
      const batch = writer.seal(stamp)
      assert.equal(Buffer.from(sent(batch).batch).toString("hex"), Buffer.from(query.batch).toString("hex"))
    })
  }

  it("partition_id_three_messages: the whole request is as recorded, but for what the connection fills in", () => {
    const { request } = exchange("send_messages", "partition_id_three_messages")
    const times = [1000n, 2000n, 3000n].map((delta) => stamp.timestampMicros + delta)
    const batch = seal(
      ["one", "two", "three"].map((text, i) =>
        record({ payload: Buffer.from(text), id: BigInt(i + 1), timestampMicros: times[i] }),
      ),
    )
    assert.equal(batch.frame.subarray(headerBytes).toString("hex"), request.subarray(headerBytes).toString("hex"))
  })
})

describe("batches of recorded polls", () => {
  const polls = exchanges.filter((one) => one.file === "poll_messages" && one.response.length > headerBytes + 16)
  for (const { name, response } of polls) {
    it(`${name}: are read with all checksums, and hold what the reply counts`, () => {
      const reply = polled.read(new ByteReader(readReply(response).payload, name), "0.11")
      const batches = readBatches(reply.records)
      assert.equal(
        batches.reduce((sum, batch) => sum + batch.count, 0),
        reply.messagesCount,
      )
      let last = -1n
      for (const batch of batches) {
        for (let i = 0; i < batch.count; i++) {
          assert.ok(batch.offset(i) > last)
          last = batch.offset(i)
          assert.equal(batch.indexOf(last), i)
          assert.ok(batch.timestampMicros(i) > 0n)
          assert.ok(batch.headers(i) instanceof Headers)
        }
        assert.equal(batch.indexOf(last + 1n), batch.count)
      }
    })
  }

  it("offset_1_count_2: a batch that was cut keeps its offsets", () => {
    const { response } = exchange("poll_messages", "offset_1_count_2_sliced_batch")
    const [batch] = readBatches(polled.read(new ByteReader(readReply(response).payload, "a poll"), "0.11").records)
    assert.deepEqual([batch?.firstOffset, batch?.lastOffset, batch?.count], [1n, 2n, 2])
    assert.equal(Buffer.from(batch?.payload(0) ?? []).toString(), "two")
    assert.equal(batch?.originTimestampMicros(1), stamp.timestampMicros + 3000n)
  })

  it("user_headers_every_kind: all fifteen kinds come back", () => {
    const { response } = exchange("poll_messages", "user_headers_every_kind")
    const batches = readBatches(polled.read(new ByteReader(readReply(response).payload, "a poll"), "0.11").records)
    const kinds = batches.flatMap((batch) =>
      Array.from({ length: batch.count }, (_, i) => [...batch.headers(i)].map(([, value]) => value.kind)).flat(),
    )
    assert.equal(new Set(kinds).size, 15)
    const headers = batches.flatMap((batch) => Array.from({ length: batch.count }, (_, i) => batch.headers(i)))
    const typed = headers.find((one) => one.size > 0)
    assert.equal(typed?.get("str")?.value, "text")
    assert.equal(typed?.get("42")?.value, "int key")
  })
})

const bytes = (maxLength: number, minLength = 0) =>
  fc.uint8Array({ minLength, maxLength }).map((array) => Uint8Array.from(array))
const headerValue = fc.oneof(
  bytes(255).map((value) => HeaderValue.raw(value)),
  fc
    .string({ maxLength: 60 })
    .filter((text) => text.isWellFormed())
    .map((text) => HeaderValue.string(text)),
  fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n }).map((value) => HeaderValue.int64(value)),
  fc.boolean().map((value) => HeaderValue.bool(value)),
)
const headerName = fc.oneof(
  fc.constantFrom("a", "b", "ü", "millrace-keys"),
  fc.string({ minLength: 1, maxLength: 40 }).filter((text) => text.isWellFormed() && !text.startsWith("millrace-")),
)
const records = fc.array(
  fc.record({
    payload: fc.option(bytes(300)),
    key: fc.option(bytes(255)),
    headers: fc.array(fc.tuple(headerName, headerValue), { maxLength: 6 }).map((entries) => Headers.from(entries)),
    id: fc.option(fc.bigInt({ min: 1n, max: (1n << 128n) - 1n }), { nil: undefined }),
    timestampMicros: fc.constant(undefined),
  }),
  { minLength: 1, maxLength: 12 },
)

describe("records of ours", () => {
  it("come back as they were, absent apart from empty, headers in order with their kinds", () => {
    fc.assert(
      fc.property(records, (list) => {
        const batch = readBack(seal(list))
        assert.equal(batch.count, list.length)
        list.forEach((one, i) => {
          assert.deepEqual(batch.payload(i), one.payload)
          assert.deepEqual(batch.key(i), one.key)
          assert.deepEqual(JSON.stringify(batch.headers(i)), JSON.stringify(one.headers))
          assert.equal(batch.id(i), one.id ?? stamp.id + BigInt(i))
          assert.equal(batch.originTimestampMicros(i), stamp.timestampMicros)
          assert.equal(batch.offset(i), BigInt(i))
        })
      }),
      { numRuns: 300 },
    )
  })

  it("are told again by the sealed batch, and by both halves of a split one", () => {
    fc.assert(
      fc.property(records, fc.boolean(), (list, timed) => {
        const given = list.map((one, i) => (timed ? { ...one, timestampMicros: 5_000_000n - BigInt(i) } : one))
        const expected = given.map((one, i) => ({
          payload: one.payload,
          key: one.key,
          headers: JSON.stringify(one.headers),
          id: one.id ?? stamp.id + BigInt(i),
          timestampMicros: one.timestampMicros ?? stamp.timestampMicros,
        }))
        const told = (batch: IggySealedBatch) =>
          batch.records().map((one) => ({ ...one, headers: JSON.stringify(one.headers) }))
        const batch = seal(given)
        assert.deepEqual(told(batch), expected)
        if (given.length < 2) return
        const [first, second] = batch.split()
        assert.deepEqual([...told(first), ...told(second)], expected)
        assert.equal(sent(first).messagesCount, first.count)
      }),
      { numRuns: 200 },
    )
  })

  it("of which one is above a limit are refused alone", () => {
    const writer = new IggyBatchWriter(target, new SlabPool(), { records: 10, bytes: 1 << 30 })
    assert.ok(writer.tryAppend(record()))
    const before = writer.bytes
    for (const one of [
      record({ key: new Uint8Array(256) }),
      record({ headers: Headers.from([["x".repeat(256), "1"]]) }),
      record({ headers: Headers.from([["x", HeaderValue.raw(new Uint8Array(256))]]) }),
      record({
        headers: Headers.from(Array.from({ length: 400 }, () => ["x", HeaderValue.raw(new Uint8Array(255))] as const)),
      }),
      record({ payload: new Uint8Array(64_000_001) }),
    ]) {
      assert.throws(
        () => writer.tryAppend(one),
        (error) => error instanceof MillraceError && error.kind === "record-too-large",
      )
      assert.deepEqual([writer.bytes, writer.count], [before, 1])
    }
    assert.equal(readBack(writer.seal(stamp)).count, 1)
  })

  it("keep to the limits of the writer, but for the first", () => {
    const small = new IggyBatchWriter(target, new SlabPool(), { records: 2, bytes: 10 })
    assert.ok(small.tryAppend(record({ payload: new Uint8Array(100) })))
    assert.equal(small.tryAppend(record()), false)
    const few = new IggyBatchWriter(target, new SlabPool(), { records: 2, bytes: 1 << 20 })
    assert.deepEqual(
      [record(), record(), record()].map((one) => few.tryAppend(one)),
      [true, true, false],
    )
  })

  it("that are too far apart in time do not share a batch", () => {
    const writer = new IggyBatchWriter(target, new SlabPool(), roomy)
    const at = 10n ** 15n
    const spread = 2n ** 32n - 1n
    assert.ok(writer.tryAppend(record({ timestampMicros: at })))
    assert.equal(writer.tryAppend(record()), false)
    assert.equal(writer.tryAppend(record({ timestampMicros: at + spread + 1n })), false)
    assert.ok(writer.tryAppend(record({ timestampMicros: at + spread })))
    assert.equal(writer.tryAppend(record({ timestampMicros: at - 1n })), false)
    const batch = readBack(writer.seal(stamp))
    assert.deepEqual([batch.originTimestampMicros(0), batch.originTimestampMicros(1)], [at, at + spread])
  })
})

describe("the buffer of a batch", () => {
  it("goes back when it is released and nobody uses it any more, once", () => {
    const pool = new SlabPool()
    const batch = seal([record()], pool)
    batch.pin()
    batch.release()
    batch.release()
    assert.equal(pool.freeBytes, 0)
    assert.ok(batch.frame.length > headerBytes)
    assert.throws(() => batch.records(), /too late/)
    batch.unpin()
    assert.equal(pool.freeBytes, 4096)
    assert.throws(() => batch.pin(), /released/)
    assert.throws(() => batch.frame, /released/)
  })

  it("grows without losing a record", () => {
    const writer = new IggyBatchWriter(target, new SlabPool(), { records: 5000, bytes: 8 << 20 })
    for (let i = 0; i < 3000; i++) assert.ok(writer.tryAppend(record({ payload: Buffer.from(`record ${i}`) })))
    const batch = readBack(writer.seal(stamp))
    assert.equal(Buffer.from(batch.payload(2999) ?? []).toString(), "record 2999")
  })
})

describe("bytes that contradict themselves", () => {
  const whole = Buffer.from(sent(seal([record({ key: Buffer.from("k") }), record({ payload: null }), record()])).batch)

  it("are found wherever they are cut", () => {
    for (let length = 1; length < whole.length; length++) {
      assert.throws(() => readBatches(whole.subarray(0, length)), CorruptionError, `cut at ${length}`)
    }
  })

  it("are found wherever a byte is altered that a checksum covers", () => {
    for (let at = 0; at < whole.length; at++) {
      if (at >= 52 && at < 256) continue
      const altered = Buffer.from(whole)
      altered[at] = (altered[at] as number) ^ 0x41
      assert.throws(() => readBatches(altered), CorruptionError, `altered at ${at}`)
    }
  })

  it("do not hide the batches before them, and tell where they lie", () => {
    const altered = Buffer.from(whole)
    altered[altered.length - 1] = (altered[altered.length - 1] as number) ^ 0x41
    altered.writeBigUInt64LE(7n, batchAt.baseOffset)
    assert.equal(readBatches(Buffer.concat([whole, altered])).length, 1)
    assert.throws(
      () => readBatches(altered),
      (error: CorruptionError) => error.context.offset === 7n && error.context.nextOffset === 10n,
    )
  })

  it("of any kind lead to a CorruptionError and nothing else", () => {
    fc.assert(
      fc.property(bytes(700, 1), (noise) => {
        assert.throws(() => readBatches(noise), CorruptionError)
      }),
    )
  })

  it("in the headers of one record leave the rest readable", () => {
    fc.assert(
      fc.property(bytes(120, 1), (noise) => {
        const batch = withHeaders(noise)
        assert.deepEqual(batch.payload(0), Uint8Array.from(Buffer.from("hello")))
        batch.key(0)
        assert.equal(batch.id(0), 7n)
        try {
          for (const [name, value] of batch.headers(0)) assert.ok(name.length > 0 && value.bytes.length >= 0)
        } catch (error) {
          assert.ok(error instanceof MillraceError && error.kind === "decode", String(error))
        }
      }),
      { numRuns: 500 },
    )
  })
})

/** A batch of one message whose header block is arbitrary, with the right checksums. */
function withHeaders(block: Uint8Array) {
  const message = sent(seal([record({ payload: Buffer.from("hello"), id: 7n })])).batch
  const all = Buffer.concat([message, block])
  all.writeBigUInt64LE(BigInt(all.length), 32)
  all.writeUInt32LE(block.length, 256 + 32)
  all.writeBigUInt64LE(xxh3.xxh64(all.subarray(256 + 8)), 256)
  all.writeBigUInt64LE(
    batchChecksum(all, 0, messageChecksums({ bytes: all, starts: Uint32Array.of(256), end: all.length })),
    40,
  )
  return readBatch(all, 0)
}
