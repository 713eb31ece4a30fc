/** Records in the form that tests write them down, and in the form that they compare. */
import { type EncodedBatch, Headers, type HeadersInit, type MessageId, type WireRecord } from "@millrace/contract"

const utf8 = new TextEncoder()
const strict = new TextDecoder("utf-8", { fatal: true })

/** A record as a test writes it: a text stands for a payload in UTF-8, what is left out is absent. */
export type Draft =
  | string
  | {
      readonly payload?: Uint8Array | string | null
      readonly key?: Uint8Array | string | null
      readonly headers?: HeadersInit
      readonly id?: MessageId
      readonly timestampMicros?: bigint
    }

/** A record as it was read. */
export interface Seen {
  readonly partition: number
  readonly offset: bigint
  readonly payload: Uint8Array | null
  readonly key: Uint8Array | null
  readonly headers: Headers
  readonly id: MessageId | undefined
  readonly timestampMicros: bigint
  readonly originTimestampMicros: bigint | undefined
}

/** UTF-8 bytes of a text. */
export function bytes(text: string): Uint8Array {
  return utf8.encode(text)
}

/** The text of a payload; fails on a tombstone and on bytes that are not UTF-8. */
export function text(payload: Uint8Array | null | undefined): string {
  if (payload === null || payload === undefined) throw new Error("expected a payload, found none")
  return strict.decode(payload)
}

export function texts(seen: readonly { readonly payload: Uint8Array | null }[]): string[] {
  return seen.map((record) => text(record.payload))
}

/** `from` to `to` − 1 as texts with a prefix, for records that must come back in order. */
export function numbered(prefix: string, from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, index) => `${prefix}${from + index}`)
}

/** The complete record that a batch writer takes. */
export function wire(draft: Draft): WireRecord {
  const parts = typeof draft === "string" ? { payload: draft } : draft
  return {
    payload: toBytes(parts.payload === undefined ? "" : parts.payload),
    key: toBytes(parts.key ?? null),
    headers: Headers.from(parts.headers),
    id: parts.id,
    timestampMicros: parts.timestampMicros,
  }
}

/** The records of a batch from an offset on. */
export function decode(partition: number, batch: EncodedBatch, from: bigint): Seen[] {
  const seen: Seen[] = []
  for (let index = batch.indexOf(from); index < batch.count; index++) {
    seen.push({
      partition,
      offset: batch.offset(index),
      payload: batch.payload(index),
      key: batch.key(index),
      headers: batch.headers(index),
      id: batch.id(index),
      timestampMicros: batch.timestampMicros(index),
      originTimestampMicros: batch.originTimestampMicros(index),
    })
  }
  return seen
}

function toBytes(value: Uint8Array | string | null): Uint8Array | null {
  return typeof value === "string" ? utf8.encode(value) : value
}
