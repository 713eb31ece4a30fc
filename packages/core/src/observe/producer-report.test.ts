/** Reports against bytes written by hand, and what is no report. */
import assert from "node:assert/strict"
import { test } from "node:test"
import type { ProducerStatistics } from "../producer/statistics.ts"
import { type CborValue, encodeCbor } from "./cbor.ts"
import { decodeObservation, encodeObservation, largestReportBytes, type ObservedProducer } from "./producer-report.ts"

const statistics: ProducerStatistics = {
  firstActivityMillis: 1000,
  lastActivityMillis: 2000,
  submittedRecords: 3,
  submittedPayloadBytes: 300,
  confirmedRecords: 2,
  confirmedPayloadBytes: 200,
  failedCalls: 1,
  retries: 5,
  latency: { samples: 2, p50Micros: 1024 },
}

function producer(topic = "t", instanceId = "01ARYZ6S41TSV4RRFFQ69G5FAV"): ObservedProducer {
  return { instanceId, name: { stream: "s", topic }, statistics }
}

const ascii = (text: string): string => Buffer.from(text).toString("hex")
/** A text of less than 24 bytes, and one of less than 256. */
const short = (text: string): string => (0x60 + text.length).toString(16) + ascii(text)
const long = (text: string): string => `78${text.length.toString(16)}${ascii(text)}`

test("a report has the fields of the table, in its order, in the shortest form", () => {
  const bytes = encodeObservation({
    observedAtMillis: 1_700_000_000_000,
    expiresAfterMillis: 30_000,
    producers: [producer()],
  })
  const expected = [
    "a4",
    `${long("producer_presence_version")}01`,
    `${short("observed_at_millis")}1b0000018bcfe56800`,
    `${short("expires_after_millis")}197530`,
    `${short("producers")}81`,
    "ad",
    short("instance_id") + long("01ARYZ6S41TSV4RRFFQ69G5FAV"),
    short("stream") + short("s"),
    short("topic") + short("t"),
    `${short("first_activity_millis")}1903e8`,
    `${short("last_activity_millis")}1907d0`,
    `${short("submitted_records")}03`,
    `${short("submitted_payload_bytes")}19012c`,
    `${short("confirmed_records")}02`,
    `${long("confirmed_payload_bytes").replace(/^78../, "77")}18c8`,
    `${short("retries")}05`,
    `${short("failed_calls")}01`,
    `${short("last_success_millis")}f6`,
    `${short("latency")}a4`,
    `${short("samples")}02`,
    `${short("p50_micros")}190400`,
    `${short("p99_micros")}f6`,
    `${short("p999_micros")}f6`,
  ].join("")
  assert.equal(Buffer.from(bytes as Uint8Array).toString("hex"), expected)
})

test("what was written comes back; what was not known is absent, and not 0", () => {
  const bytes = encodeObservation({ observedAtMillis: 5000, expiresAfterMillis: 3000, producers: [producer()] })
  const [report] = decodeObservation(bytes as Uint8Array)
  assert.deepEqual(report, {
    instanceId: "01ARYZ6S41TSV4RRFFQ69G5FAV",
    stream: "s",
    topic: "t",
    observedAtMillis: 5000,
    expiresAtMillis: 8000,
    ...statistics,
  })
  assert.ok(report !== undefined && !("lastSuccessMillis" in report) && !("p99Micros" in report.latency))
})

/** A report as another SDK would send it: without what it does not know, or with null in its place. */
function foreign(change: Record<string, CborValue> = {}, more: Record<string, CborValue> = {}): Uint8Array {
  return encodeCbor({
    producers: [
      {
        instance_id: "x",
        stream: "s",
        topic: "t",
        first_activity_millis: 1,
        last_activity_millis: 2,
        submitted_records: 3,
        submitted_payload_bytes: 4,
        confirmed_records: null,
        confirmed_payload_bytes: null,
        retries: null,
        failed_calls: 0,
        latency: { samples: 0 },
        ...change,
      },
    ],
    expires_after_millis: 30_000,
    observed_at_millis: 10,
    producer_presence_version: 1,
    ...more,
  })
}

test("a report by another SDK is read, whatever the order of its fields, and with fields that are not known here", () => {
  assert.deepEqual(decodeObservation(foreign({ colour: "red" }, { node: 7 })), [
    {
      instanceId: "x",
      stream: "s",
      topic: "t",
      firstActivityMillis: 1,
      lastActivityMillis: 2,
      submittedRecords: 3,
      submittedPayloadBytes: 4,
      failedCalls: 0,
      latency: { samples: 0 },
      observedAtMillis: 10,
      expiresAtMillis: 30_010,
    },
  ])
})

test("what is no report is refused", () => {
  const others: Uint8Array[] = [
    new Uint8Array(0),
    new TextEncoder().encode('{"a":1}'),
    encodeCbor(1),
    encodeCbor({}),
    foreign({}, { producer_presence_version: 2 }),
    foreign({}, { producers: 1 }),
    foreign({}, { producers: [1] }),
    foreign({}, { observed_at_millis: "now" }),
    foreign({ instance_id: 5 }),
    foreign({ submitted_records: null }),
    foreign({ latency: null }),
    foreign().subarray(0, 40),
  ]
  for (const bytes of others) assert.throws(() => decodeObservation(bytes), SyntaxError)
})

test("a report of more than 64 KiB is not made, one of as much is", () => {
  const of = (topicBytes: number): Uint8Array | undefined =>
    encodeObservation({ observedAtMillis: 1, expiresAfterMillis: 1, producers: [producer("t".repeat(topicBytes))] })
  const frame = (of(1000) as Uint8Array).length - 1000
  assert.equal(of(largestReportBytes - frame)?.length, 65_536)
  assert.equal(of(largestReportBytes - frame + 1), undefined)
})
