/** Record metadata as headers, and its limits: table 1.11 of the options. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError, RecordTooLargeError } from "@millrace/contract"
import {
  type ContentType,
  checkInlinePayload,
  mergeMetadata,
  metadataHeaders,
  type RecordMetadata,
} from "./metadata.ts"

const shownHeaders = (metadata: RecordMetadata): [string, string, unknown][] =>
  metadataHeaders(metadata).map(([name, value]) => [name, value.kind, value.value])
const refused = (metadata: RecordMetadata, says: RegExp): void => {
  assert.throws(
    () => metadataHeaders(metadata),
    (error) => error instanceof InvalidError && says.test(error.message),
  )
}
const entries = (count: number, value: string): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [String.fromCharCode(97 + (i % 26)) + i, value]))

describe("as headers", () => {
  test("each piece has its name and kind", () => {
    const schemaFingerprint = new Uint8Array(32).fill(3)
    const metadata: RecordMetadata = {
      contentType: "arrow",
      schemaId: 4_294_967_295,
      schemaFingerprint,
      index: { user: "7" },
      inlinePayload: true,
      projectionRef: "orders",
      correlation: "c-1",
    }
    assert.deepEqual(shownHeaders(metadata), [
      ["millrace-ct", "uint8", 7],
      ["millrace-sid", "uint32", 4_294_967_295],
      ["millrace-sfp", "raw", schemaFingerprint],
      ["millrace-idx.user", "string", "7"],
      ["millrace-inline", "bool", true],
      ["millrace-ref", "string", "orders"],
      ["millrace-corr", "string", "c-1"],
    ])
    assert.deepEqual(shownHeaders({}), [])
  })

  test("content types have the codes of the table", () => {
    const codes: [ContentType, number][] = [
      ["raw", 0],
      ["json", 1],
      ["msgpack", 2],
      ["cbor", 3],
      ["bson", 4],
      ["avro", 5],
      ["protobuf", 6],
      ["ref", 8],
      ["any", 255],
    ]
    for (const [contentType, code] of codes)
      assert.deepEqual(shownHeaders({ contentType }), [["millrace-ct", "uint8", code]])
  })
})

describe("limits", () => {
  test("32 index entries, whose keys are not empty and have no reserved prefix", () => {
    assert.equal(metadataHeaders({ index: entries(32, "v") }).length, 32)
    refused({ index: entries(33, "v") }, /at most 32 index entries, not 33/)
    refused({ index: { "": "v" } }, /must not be empty/)
    refused({ index: { "millrace-idx.a": "v" } }, /start with "millrace-"/)
  })

  test("texts have 1 to 255 bytes of UTF-8", () => {
    assert.equal(metadataHeaders({ projectionRef: "r".repeat(255) }).length, 1)
    refused({ projectionRef: "" }, /projection reference has 0 bytes/)
    refused({ projectionRef: "r".repeat(256) }, /has 256 bytes of UTF-8; it must have 1 to 255/)
    refused({ correlation: "ü".repeat(128) }, /correlation id has 256 bytes/)
    refused({ index: { user: "" } }, /index entry "user" has 0 bytes/)
    refused({ index: { user: 7 as never } }, /index entry "user" must be a string/)
  })

  test("1,024 bytes together, 9 for each header counted", () => {
    // Four entries: 13 of prefix, 1 of key, 9 of framing, and 233 of value make 256 each.
    const index = { a: "v".repeat(233), b: "v".repeat(233), c: "v".repeat(233), d: "v".repeat(233) }
    assert.equal(metadataHeaders({ index }).length, 4)
    refused({ index: { ...index, d: "v".repeat(234) } }, /takes 1025 bytes in 4 headers; at most 1024/)
  })

  test("a schema id has 32 bits, a fingerprint 32 bytes, and it comes with Arrow and only there", () => {
    refused({ schemaId: -1 }, /-1/)
    refused({ schemaId: 2 ** 32 }, /4294967296/)
    refused({ contentType: "arrow", schemaFingerprint: new Uint8Array(31) }, /32 bytes, not 31/)
    refused(
      { contentType: "json", schemaFingerprint: new Uint8Array(32) },
      /needs the content type "arrow", not "json"/,
    )
    refused({ contentType: "arrow" }, /needs a schema fingerprint: use arrowIpc\(\) or addArrowIpc\(\)/)
    refused({ contentType: "xml" as never }, /"xml" is not known/)
  })

  test("an inline payload has 8 MiB at most", () => {
    const most = 8 * 1024 * 1024
    checkInlinePayload(new Uint8Array(most), { inlinePayload: true })
    checkInlinePayload(null, { inlinePayload: true })
    checkInlinePayload(new Uint8Array(most + 1), { inlinePayload: false })
    assert.throws(
      () => checkInlinePayload(new Uint8Array(most + 1), { inlinePayload: true }),
      (error) => error instanceof RecordTooLargeError && error.context.limitBytes === most,
    )
  })
})

test("a record's own values win over the batch's, and index entries merge", () => {
  const batch: RecordMetadata = { contentType: "json", schemaId: 1, inlinePayload: true, index: { a: "1", b: "1" } }
  assert.deepEqual(mergeMetadata(batch, { schemaId: 2, inlinePayload: false, index: { b: "2", c: "2" } }), {
    contentType: "json",
    schemaId: 2,
    inlinePayload: false,
    index: { a: "1", b: "2", c: "2" },
  })
  assert.deepEqual(mergeMetadata(batch, {}), batch)
  assert.deepEqual(mergeMetadata({}, { index: { a: "1" } }), { index: { a: "1" } })
  refused(
    mergeMetadata(
      { index: entries(20, "v") },
      { index: { ...entries(0, ""), ...Object.fromEntries(Array.from({ length: 13 }, (_, i) => [`own${i}`, "v"])) } },
    ),
    /not 33/,
  )
})
