import { Headers } from "@millrace/contract"
import type { Route } from "../producer/routing.ts"
import type { OutgoingRecord, SendableRecord } from "./outgoing-record.ts"

/** What a record of nothing takes of a buffer: headers and bookkeeping of the wire forms stay below it. */
const overheadBytes = 32

/** What a record takes of a bounded buffer, in bytes: payload, key and headers, and some for what surrounds them. */
export function bufferBytesOf(record: SendableRecord): number {
  if (record instanceof Uint8Array) return record.length + overheadBytes
  let bytes = overheadBytes + payloadBytesOf(record) + (record.key === null ? 0 : record.key.length)
  if (record.headers.size > 0) for (const [name, value] of record.headers) bytes += name.length + value.bytes.length
  return bytes
}

/** The same of a record as a failure gives it back. */
export function outgoingBytesOf({ payload, key, headers }: OutgoingRecord): number {
  let bytes = overheadBytes + (payload?.length ?? 0) + (key?.length ?? 0)
  if (headers instanceof Headers) for (const [name, value] of headers) bytes += name.length + value.bytes.length
  return bytes
}

/** 0 for a tombstone. */
export function payloadBytesOf(record: SendableRecord): number {
  if (record instanceof Uint8Array) return record.length
  return record.payload === null ? 0 : record.payload.length
}

/** Of the key that is stored with the record: its own, or its route's; 0 without one. */
export function keyBytesOf(record: SendableRecord, route: Route): number {
  if (!(record instanceof Uint8Array) && (record.partition !== -1 || record.key !== null)) {
    return record.key === null ? 0 : record.key.length
  }
  return route.kind === "key" ? route.key.length : 0
}

/** The record with bytes of its own, for one whose sender goes on before the record is in a batch. */
export function heldRecord(record: SendableRecord): SendableRecord {
  if (record instanceof Uint8Array) return record.slice()
  return { ...record, payload: record.payload?.slice() ?? null, key: record.key?.slice() ?? null }
}
