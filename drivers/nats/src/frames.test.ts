import assert from "node:assert/strict"
import { test } from "node:test"
import { Headers, type WireRecord } from "@millrace/contract"
import { NatsBatchWriter } from "./batch-writer.ts"
import { atomicFrames, ingestEnd, ingestFrames, ingestPrefix, singleFrame } from "./frames.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"

const subject = "millrace.s.t.0.00000000000000"
const id = 0x01a228ba_f7de_7000_8000_000000100000n
const target = { stream: "s", topic: "t", partition: 0, lineage: "00000000000000", subject }

function batchOf(payloads: readonly (string | Partial<WireRecord>)[], allIds = true): NatsSealedBatch {
  const writer = new NatsBatchWriter(target, {
    limits: { records: 100, bytes: 100_000 },
    maxPayloadBytes: 1_048_576,
    allIds,
  })
  for (const one of payloads) {
    const parts = typeof one === "string" ? { payload: Buffer.from(one) } : one
    const record = {
      payload: Buffer.from("-"),
      key: null,
      headers: Headers.empty,
      id: undefined,
      timestampMicros: undefined,
    }
    assert.ok(writer.tryAppend({ ...record, ...parts }))
  }
  return writer.seal({ id, timestampMicros: 1n, resend: false })
}

test("a single record is one HPUB with its id (client protocol)", () => {
  const frame = singleFrame(batchOf(["hello"]), 0, { subject, reply: "_INBOX.x.1" })
  assert.equal(
    frame.toString("latin1"),
    [
      `HPUB ${subject} _INBOX.x.1 63 68\r\n`,
      "NATS/1.0\r\n",
      "Nats-Msg-Id: 01a228ba-f7de-7000-8000-000000100000\r\n",
      "\r\n",
      "hello\r\n",
    ].join(""),
  )
})

test("a record without id and headers is one PUB", () => {
  assert.equal(
    singleFrame(batchOf(["hello"], false), 0, { subject, reply: "r" }).toString("latin1"),
    `PUB ${subject} r 5\r\nhello\r\n`,
  )
})

test("an atomic batch numbers its messages, asks at both ends and commits with the last (ADR-50)", () => {
  const batch = batchOf(["a", { payload: Buffer.from("b"), id: 5n }, "c"], false)
  const frames = atomicFrames(batch, [0, 1, 2], { subject, batchId: "B", firstReply: "f", lastReply: "l" })
  assert.equal(
    frames.toString("latin1"),
    [
      `HPUB ${subject} f 54 55\r\nNATS/1.0\r\nNats-Batch-Id: B\r\nNats-Batch-Sequence: 1\r\n\r\na\r\n`,
      `HPUB ${subject} 105 106\r\nNATS/1.0\r\nNats-Batch-Id: B\r\nNats-Batch-Sequence: 2\r\n`,
      "Nats-Msg-Id: 00000000-0000-0000-0000-000000000005\r\n\r\nb\r\n",
      `HPUB ${subject} l 76 77\r\nNATS/1.0\r\nNats-Batch-Id: B\r\nNats-Batch-Sequence: 3\r\nNats-Batch-Commit: 1\r\n\r\nc\r\n`,
    ].join(""),
  )
})

test("an ingest's messages carry flow, gap mode, number and operation in the reply subject (ADR-50)", () => {
  const batch = batchOf(["a", "bb", "ccc"], false)
  const prefix = ingestPrefix(subject, "_INBOX.x.1")
  const all = { from: 0, count: 3 }
  assert.equal(
    ingestFrames(batch, all, { prefix, sequence: 1, commit: true }).toString("latin1"),
    [
      `PUB ${subject} _INBOX.x.1.500.fail.1.0.$FI 1\r\na\r\n`,
      `PUB ${subject} _INBOX.x.1.500.fail.2.1.$FI 2\r\nbb\r\n`,
      `PUB ${subject} _INBOX.x.1.500.fail.3.2.$FI 3\r\nccc\r\n`,
    ].join(""),
  )
  assert.equal(
    ingestFrames(batch, { from: 1, count: 1 }, { prefix, sequence: 12_345, commit: false }).toString("latin1"),
    `PUB ${subject} _INBOX.x.1.500.fail.12345.1.$FI 2\r\nbb\r\n`,
  )
  assert.equal(
    ingestFrames(batchOf(["a"]), { from: 0, count: 1 }, { prefix, sequence: 1, commit: true }).toString("latin1"),
    `HPUB ${subject} _INBOX.x.1.500.fail.1.2.$FI 63 64\r\nNATS/1.0\r\nNats-Msg-Id: 01a228ba-f7de-7000-8000-000000100000\r\n\r\na\r\n`,
  )
  assert.equal(ingestEnd(prefix, 9).toString("latin1"), `PUB ${subject} _INBOX.x.1.500.fail.9.3.$FI 0\r\n\r\n`)
})

test("ids count on from the batch's, also over a carry and beside given ones", () => {
  const payloads = Array.from({ length: 18 }, (_, index) => (index === 3 ? { id: 9n } : `${index}`))
  const text = ingestFrames(
    batchOf(payloads),
    { from: 0, count: 18 },
    {
      prefix: ingestPrefix("s", "r"),
      sequence: 1,
      commit: false,
    },
  ).toString("latin1")
  const ids = [...text.matchAll(/Nats-Msg-Id: (\S+)/g)].map(([, found]) =>
    BigInt(`0x${(found as string).replaceAll("-", "")}`),
  )
  assert.deepEqual(
    ids,
    payloads.map((_, index) => (index === 3 ? 9n : id + BigInt(index))),
  )
})
