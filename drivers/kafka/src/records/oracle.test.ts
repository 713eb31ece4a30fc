/** Our record batches beside those of Kafka's own classes. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { Headers, HeaderValue, type WireRecord } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import type { CodecName } from "../compression/codecs.ts"
import { askOracle, oracleNeed } from "../protocol/oracle.test-support.ts"
import { place, readText, recordText, sealed } from "./batch-text.test-support.ts"
import { readBatches } from "./read-batches.ts"

const codecs: readonly CodecName[] = ["none", "gzip", "snappy", "lz4", "zstd"]
const batchMillis = 1_700_000_000_123n

test("Kafka's classes read what we write, and we what they write", async (t) => {
  const reason = await oracleNeed()
  if (reason !== undefined) {
    t.skip(`needs kafka: ${reason}`)
    return
  }
  const ours = codecs.flatMap((codec) => lists().map((records) => ({ codec, records })))
  const theirs = codecs.flatMap((codec) =>
    ["create", "append"].flatMap((type) => foreignLists().map((spec) => ({ codec, type, spec }))),
  )
  const answers = await askOracle([
    ...ours.map(({ codec, records }) => `read ${written(records, codec).toString("hex")}`),
    ...theirs.map(({ codec, type, spec }) => `build ${codec} ${codec === "lz4" ? 9 : 3} ${type} ${spec.join(" ")}`),
  ])
  for (const [i, { codec, records }] of ours.entries()) {
    const stored = codec === "none" ? codec : (answers[i] as string).split(" ")[3]
    const head = `batch 0 ${records.length - 1} ${stored} CreateTime ${largestMillis(records)} 77 3 2147483647 false false`
    assert.equal(answers[i], [head, ...records.map(expected)].join(" "), `${codec}, ${records.length} records`)
    // What cannot be made smaller is stored as it is.
    if (records.length > 100) assert.equal(stored, codec)
  }
  for (const [i, { codec, type, spec }] of theirs.entries()) {
    const answer = answers[ours.length + i] as string
    assert.match(answer, /^[0-9a-f]+$/, answer)
    const { batches, error } = readBatches(Buffer.from(answer, "hex"), place)
    assert.equal(error, undefined)
    const [batch, ...more] = batches
    assert.ok(batch !== undefined && more.length === 0)
    const appended = type === "append" ? "1700000000000" : undefined
    const plain = spec.map((text) => text.replace(/=~/g, "="))
    const wanted = appended === undefined ? plain : plain.map((text) => text.replace(/:-?\d+:/, `:${appended}:`))
    assert.deepEqual(readText(batch), wanted, `${codec} ${type}`)
    assert.equal(batch.originTimestampMicros(0) === undefined, type === "append")
    assert.equal(batch.nextOffset, batch.lastOffset + 1n)
  }
})

function written(records: readonly WireRecord[], codec: CodecName): Buffer {
  const batch = sealed(records, { codec, micros: batchMillis * 1000n + 456n })
  return Buffer.from(batch.stamp({ producerId: 77n, epoch: 3, sequence: 0x7fffffff }))
}

/** As it must be on the wire, told from the mapping of headers and not by the code. */
function expected(record: WireRecord, index: number): string {
  const headers: [string, Uint8Array | null][] = Array.from(record.headers, ([name, value]) => [name, value.bytes])
  if (record.id !== undefined) {
    headers.push(["millrace-id", Buffer.from(record.id.toString(16).padStart(32, "0"), "hex")])
  }
  if (record.headers.has("typed")) headers.push(["millrace-types", Buffer.from("261")])
  return recordText({
    offset: index,
    millis: record.timestampMicros === undefined ? batchMillis : record.timestampMicros / 1000n,
    key: record.key,
    value: record.payload,
    headers,
  })
}

function largestMillis(records: readonly WireRecord[]): bigint {
  let largest = -1n
  for (const { timestampMicros } of records) {
    const millis = timestampMicros === undefined ? batchMillis : timestampMicros / 1000n
    if (millis > largest) largest = millis
  }
  return largest
}

const text = (value: string): Uint8Array => new TextEncoder().encode(value)
const plain: WireRecord = {
  payload: text("payload"),
  key: null,
  headers: Headers.empty,
  id: undefined,
  timestampMicros: undefined,
}
const typed = Headers.from([
  ["a", "x"],
  ["typed", HeaderValue.int32(-5)],
  ["a", HeaderValue.raw(text("utf8, but raw"))],
])

/** One batch each. */
function lists(): WireRecord[][] {
  const random = seededRandom(5)
  const bytes = (length: number): Uint8Array => Uint8Array.from({ length }, () => random.uint32() & 0xff)
  return [
    [plain],
    [{ ...plain, payload: null, key: new Uint8Array(0) }],
    [{ ...plain, payload: new Uint8Array(0), key: bytes(300) }],
    [
      {
        ...plain,
        headers: Headers.from([
          ["é", ""],
          ["e", "1"],
          ["e", "2"],
        ]),
        id: (1n << 127n) + 5n,
      },
    ],
    [
      { ...plain, headers: typed },
      { ...plain, headers: typed, id: 1n },
    ],
    // Times far apart: the distance takes more than 31 and more than 32 bits of milliseconds.
    [
      { ...plain, timestampMicros: 5_000_000n },
      { ...plain, timestampMicros: 5_000_000n + 0x8000_0000n * 1000n },
      { ...plain, timestampMicros: 1_900_000_000_000_000n },
      { ...plain, timestampMicros: 0n },
    ],
    // Some with a time and some without, in either order.
    [plain, plain, { ...plain, timestampMicros: 5_000_000n }, plain],
    [{ ...plain, timestampMicros: 5_000_000n }, plain, { ...plain, timestampMicros: 1_800_000_000_000_000n }, plain],
    Array.from({ length: 1_000 }, (_, i) => ({
      ...plain,
      payload: i % 9 === 0 ? null : i % 5 === 0 ? bytes(i % 400) : text(`the record number ${i} `.repeat(i % 7)),
      key: i % 3 === 0 ? null : text(`key-${i % 17}`),
    })),
    [
      { ...plain, payload: bytes(70_000) },
      { ...plain, payload: new Uint8Array(200_000) },
    ],
  ]
}

/** Batches of another client, in the oracle's words: holes between offsets, headers without a value, times far apart. */
function foreignLists(): string[][] {
  const random = seededRandom(6)
  const bytes = (length: number): string =>
    Buffer.from(Uint8Array.from({ length }, () => (random.uint32() % 7 === 0 ? random.uint32() & 0xff : 97))).toString(
      "hex",
    )
  return [
    ["0:1600000000000:~:~:"],
    ["9007199254740993:1600000000000:6b:76:61=~,61=00,c3a9="],
    ["5:1600000000000:6b:76:", "9:1600000000001:~::", "2000000000:4000000000000:00:ff:62=fe"],
    ["100:10:6b:76:", "101:3000000000:6b:76:", "102:0:6b:76:"],
    Array.from({ length: 800 }, (_, i) => `${i * 2}:${1_600_000_000_000 + i}:${bytes(i % 5)}:${bytes(i % 300)}:`),
    [`7:1600000000000:~:${bytes(150_000)}:`],
  ]
}
