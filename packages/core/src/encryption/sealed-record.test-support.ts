/** Records, keys and limits for tests of encryption. */
import { Headers, HeaderValue, type Manifest } from "@millrace/contract"
import { seededRandom, systemRandom } from "@millrace/runtime"
import fc from "fast-check"
import type { PreparedRecord, SendableRecord } from "../record/outgoing-record.ts"
import type { OpenedContent, RecordOpener, SealerContext } from "./encryptor.ts"

export const limits: Manifest["limits"] = {
  payloadBytes: 1_000_000,
  headersBytes: 100_000,
  headerNameBytes: 255,
  headerValueBytes: 255,
  keyBytes: 255,
  nameBytes: 255,
  partitions: 1000,
  batchBytes: 1 << 20,
  batchRecords: 1000,
}

export const context: SealerContext = { limits, random: systemRandom }

export function seeded(seed: number): SealerContext {
  return { limits, random: seededRandom(seed) }
}

/** A key of one repeated byte. */
export function keyOf(byte: number): Uint8Array {
  return new Uint8Array(32).fill(byte)
}

export const place = { stream: "shop", topic: "orders" }

export function record(parts: Partial<PreparedRecord> & { readonly payload: Uint8Array | null }): PreparedRecord {
  return { key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined, partition: -1, ...parts }
}

/** What a reader makes of a record that was sealed, on the given topic. */
export function openSealed(
  opener: RecordOpener,
  sealed: SendableRecord,
  topic: { readonly stream: string; readonly topic: string } = place,
): OpenedContent | undefined {
  return sealed instanceof Uint8Array
    ? opener.open(topic, { payload: sealed, headers: () => Headers.empty })
    : opener.open(topic, { payload: sealed.payload, headers: () => sealed.headers })
}

const bytes = fc.uint8Array({ maxLength: 200 })
const headerValue = fc.oneof(
  bytes.map((value) => HeaderValue.raw(value)),
  fc.string().map((value) => HeaderValue.string(value.toWellFormed())),
  fc.maxSafeInteger().map((value) => HeaderValue.int64(BigInt(value))),
  fc.boolean().map((value) => HeaderValue.bool(value)),
)
const headerName = fc.string({ minLength: 1, maxLength: 20, unit: "grapheme" }).map((name) => name.toWellFormed())

/** Any record: bare bytes, tombstones, headers of every kind, in order and repeated. */
export const anyRecord: fc.Arbitrary<SendableRecord> = fc.oneof(
  bytes,
  fc
    .record({
      payload: fc.option(bytes),
      headers: fc.array(fc.tuple(headerName, headerValue), { maxLength: 4 }),
      key: fc.option(fc.uint8Array({ minLength: 1, maxLength: 10 })),
    })
    .map(({ payload, headers, key }) => record({ payload, key, headers: Headers.from(headers) })),
)

/** Headers as plain values, to compare. */
export function listed(headers: Headers): [string, string, number[]][] {
  return Array.from(headers, ([name, value]) => [name, value.kind, [...value.bytes]])
}
