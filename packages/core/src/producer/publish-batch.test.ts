/** What `publishBatch()` collects and sends: table 1.12 of the options; seed 000, "Key operations". */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { HeaderValue, InvalidError, RecordTooLargeError } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import { nullable, simpleFile, simpleStream } from "../codec/arrow-fixtures.test-support.ts"
import { describeArrowIpc } from "../codec/arrow-ipc.ts"
import type { Codec } from "../codec/codec.ts"
import { Json } from "../codec/json.ts"
import type { BatchPublishBuilder } from "./batch-publish-builder.ts"
import { FakeBackend, fakeManifest } from "./fake-backend.test-support.ts"

interface Rig {
  readonly backend: FakeBackend
  readonly topic: Topic
}

function rig(partitions = 1): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock, fakeManifest({}, { payloadBytes: 1 << 24, batchBytes: 1 << 26 }))
  backend.create("t", partitions)
  const client = openClient(backend.session, {}, { clock, random: seededRandom(1) })
  return { backend, topic: client.stream("s").topic("t") }
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
const headersOf = (backend: FakeBackend, index: number, partition = 0): [string, unknown][] =>
  [...(backend.records("t", partition)[index]?.headers ?? [])].map(([name, value]) => [name, value.value])

async function refused(batch: BatchPublishBuilder, says: RegExp, backend: FakeBackend): Promise<void> {
  await assert.rejects(
    batch.send(),
    (error) => (error instanceof InvalidError || error instanceof RecordTooLargeError) && says.test(error.message),
  )
  assert.equal(backend.appends.length, 0, "nothing was sent")
}

const shout: Codec<string> = {
  name: "shout",
  contentType: "raw",
  encode: (value) => bytes(`${value}!`),
  decode: String,
}

describe("what the batch says and what a record says", () => {
  test("a batch's values fill what a record leaves open, and a record's own win", async () => {
    const { topic, backend } = rig()
    const batch = topic.publishBatch().contentType("cbor").schemaId(1).projectionRef("orders").inlinePayload()
    batch.add(bytes("a"))
    batch.add(bytes("b"), { metadata: { schemaId: 2, projectionRef: "own", inlinePayload: false } })
    batch.addJson({ c: 1 })
    await batch.send()
    assert.deepEqual(headersOf(backend, 0), [
      ["millrace-ct", 3],
      ["millrace-sid", 1],
      ["millrace-inline", true],
      ["millrace-ref", "orders"],
    ])
    assert.deepEqual(headersOf(backend, 1), [
      ["millrace-ct", 3],
      ["millrace-sid", 2],
      ["millrace-inline", false],
      ["millrace-ref", "own"],
    ])
    assert.deepEqual(headersOf(backend, 2)[0], ["millrace-ct", 1])
  })

  test("headers and index entries of both are kept; with the same name the record's wins", async () => {
    const { topic, backend } = rig()
    const batch = topic.publishBatch().header("a", "batch").header("b", "batch").index("x", "batch").index("y", "batch")
    batch.addRecord({
      payload: bytes("1"),
      headers: [
        ["b", HeaderValue.int8(1)],
        ["b", "two"],
        ["c", "own"],
      ],
      metadata: { index: { y: "own" } },
    })
    batch.add(bytes("2"))
    await batch.send()
    assert.deepEqual(headersOf(backend, 0), [
      ["a", "batch"],
      ["b", 1],
      ["b", "two"],
      ["c", "own"],
      ["millrace-idx.x", "batch"],
      ["millrace-idx.y", "own"],
    ])
    assert.deepEqual(headersOf(backend, 1).slice(0, 2), [
      ["a", "batch"],
      ["b", "batch"],
    ])
  })

  test("one route for all, which a record's own key or partition leaves", async () => {
    const { topic, backend } = rig(3)
    await topic.publishBatch().partition(2).add(bytes("a")).add(bytes("b"), { partition: 0 }).add(bytes("c")).send()
    assert.deepEqual([backend.texts("t", 0), backend.texts("t", 2)], [["b"], ["a", "c"]])
    await refused(topic.publishBatch().key("k").partition(1).add(bytes("a")), /key and partition/, rig().backend)
  })

  test("2,500 records go out in requests of 1,000, and nothing makes no request", async () => {
    const { topic, backend } = rig()
    await topic
      .publishBatch()
      .extend(Array.from({ length: 2500 }, (_, i) => bytes(`r${i}`)))
      .send()
    assert.deepEqual(
      backend.appends.map(({ count }) => count),
      [1000, 1000, 500],
    )
    assert.deepEqual(await topic.publishBatch().key("k").send(), { confirmations: [] })
    assert.equal(backend.appends.length, 3)
  })
})

test("codecs, JSON, tombstones and whole records are added one by one or many at once", async () => {
  const { topic, backend } = rig()
  const json = new Json((value) => value)
  const batch = topic.publishBatch()
  batch.addEncoded("hey", shout).extendEncoded(["a", "b"], shout).addEncoded({ j: 1 }, json)
  batch.extendJson([1, "two"]).extend([bytes("x"), null, { payload: bytes("y"), headers: { h: "1" } }])
  batch.addEncoded("typed", shout, { metadata: { contentType: "msgpack" } })
  assert.equal(batch.count, 10)
  await batch.send()
  assert.deepEqual(backend.texts("t"), ["hey!", "a!", "b!", '{"j":1}', "1", '"two"', "x", "null", "y", "typed!"])
  const types = Array.from(
    { length: 10 },
    (_, i) => headersOf(backend, i).find(([name]) => name === "millrace-ct")?.[1],
  )
  assert.deepEqual(types, [0, 0, 0, 1, 1, 1, undefined, undefined, undefined, 2])
  assert.equal(backend.records("t")[7]?.payload, null)
})

describe("a bad record", () => {
  const failing: [string, (batch: BatchPublishBuilder) => void, RegExp][] = [
    ["a value that JSON cannot hold", (batch) => batch.addJson(1n), /^record #2: .*JSON/],
    ["a codec that fails", (batch) => batch.addEncoded(undefined, new Json(String)), /^record #2: .*JSON/],
    ["text for bytes", (batch) => batch.add("text" as never), /^record #2: a payload must be/],
    ["nothing for a record", (batch) => batch.addRecord(undefined as never), /^record #2: /],
    [
      "a reserved header",
      (batch) => batch.add(bytes("x"), { headers: { "millrace-ct": "1" } }),
      /^record #2: .*reserved/,
    ],
    [
      "33 index entries with the batch's",
      (batch) => batch.add(bytes("x"), { metadata: { index: thirtyTwo } }),
      /^record #2: .*not 33/,
    ],
    [
      "Arrow without a fingerprint",
      (batch) => batch.add(bytes("x"), { metadata: { contentType: "arrow" } }),
      /^record #2: .*fingerprint/,
    ],
    ["bytes that are not Arrow", (batch) => batch.addArrowIpc(bytes("not arrow")), /^record #2: .*Arrow IPC/],
    [
      "9 MiB inline",
      (batch) => batch.add(new Uint8Array(9 << 20), { metadata: { inlinePayload: true } }),
      /^record #2: .*inline/,
    ],
    ["a payload above the limit", (batch) => batch.add(new Uint8Array(17 << 20)), /^record #2: .*at most/],
  ]
  const thirtyTwo = Object.fromEntries(Array.from({ length: 32 }, (_, i) => [`k${i}`, "v"]))
  for (const [name, add, says] of failing) {
    test(`is named by its place, and nothing is sent: ${name}`, async () => {
      const { topic, backend } = rig()
      const batch = topic.publishBatch().index("batch", "v").add(bytes("fine")).add(bytes("fine too"))
      add(batch)
      await refused(batch, says, backend)
    })
  }
})

describe("Arrow IPC", () => {
  test("gets its content type and the fingerprint of its schema, as a stream and as a file", async () => {
    const { topic, backend } = rig()
    const { schemaFingerprint, rows } = describeArrowIpc(simpleStream)
    const batch = topic.publishBatch().contentType("json").projectionRef("orders")
    batch
      .addArrowIpc(simpleStream, { expected: { schemaFingerprint, rows, recordBatches: 2 }, key: "k" })
      .addArrowIpc(simpleFile)
    await batch.send()
    for (const index of [0, 1]) {
      assert.deepEqual(headersOf(backend, index), [
        ["millrace-ct", 7],
        ["millrace-sfp", schemaFingerprint],
        ["millrace-ref", "orders"],
      ])
    }
    assert.deepEqual(backend.records("t")[0]?.payload, simpleStream)
    assert.deepEqual(backend.records("t")[0]?.key, bytes("k"))
  })

  test("with another schema than was agreed on is refused, with both fingerprints", async () => {
    const other = describeArrowIpc(nullable).schemaFingerprint
    const hex = Buffer.from(other).toString("hex")
    const says = new RegExp(`^record #0: the Arrow schema has the fingerprint [0-9a-f]{64}, not ${hex}`)
    const { topic, backend } = rig()
    await refused(
      topic.publishBatch().addArrowIpc(simpleStream, { expected: { schemaFingerprint: other } }),
      says,
      backend,
    )
    await refused(
      topic.publishBatch().addArrowIpc(simpleStream, { metadata: { schemaFingerprint: other } }),
      says,
      backend,
    )
    await refused(
      topic.publishBatch().addArrowIpc(simpleStream, { expected: { fields: 5 } }),
      /4 fields, not 5/,
      backend,
    )
  })

  test("goes by itself through publish()", async () => {
    const { topic, backend } = rig()
    await topic.publish().arrowIpc(simpleStream).key("k").send()
    assert.deepEqual(headersOf(backend, 0)[0], ["millrace-ct", 7])
    assert.throws(() => topic.publish().arrowIpc(bytes("no")), InvalidError)
  })

  test("with a fingerprint of another kind goes as a record that nobody looks into", async () => {
    const { topic, backend } = rig()
    const registry = new Uint8Array(32).fill(9)
    const metadata = { contentType: "arrow", schemaFingerprint: registry } as const
    await topic.publishBatch().addRecord({ payload: simpleStream, metadata }).send()
    assert.deepEqual(headersOf(backend, 0)[1], ["millrace-sfp", registry])
  })
})
