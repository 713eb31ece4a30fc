/**
 * A record's headers on Kafka: names in UTF-8, values as their bytes, in order. Kafka keeps no kinds, so a value reads back as
 * `string` when it is UTF-8 and as `raw` otherwise, and what another client writes needs nothing more. Behind the caller's headers
 * stand, only where they are needed:
 *
 *     millrace-id      16 bytes, the id of the record, when it carries one of its own
 *     millrace-types   the kinds (`formatHeaderKinds`), when the rule above would give another, or a caller's header has one of these names
 *
 * What other clients append behind these reads by the rule. A header of theirs without a value (null) reads as `raw` without bytes.
 */
import { isUtf8 } from "node:buffer"
import {
  DecodeError,
  formatHeaderKinds,
  type HeaderKind,
  Headers,
  HeaderValue,
  headerKindCodes,
  headerKindsName,
  type MessageId,
  parseHeaderKinds,
} from "@millrace/contract"
import { putVarint, varintBytes } from "./varint.ts"

/** The name of the header that carries the id of a record. */
const idHeaderName: string = "millrace-id"

const idBytes = 16
const low64 = 0xffff_ffff_ffff_ffffn
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** What will be written for a record's headers and id. */
export interface HeaderPlan {
  readonly headers: Headers
  readonly id: MessageId | undefined
  /** The kinds, where they must be told. */
  readonly kinds: string | undefined
  readonly count: number
  /** Encoded, the count included. */
  readonly bytes: number
}

/** Measures the headers of a record. */
export function planHeaders(headers: Headers, id: MessageId | undefined): HeaderPlan {
  let count = headers.size
  let bytes = 0
  let told = false
  for (const [name, value] of headers) {
    bytes += entryBytes(Buffer.byteLength(name), value.bytes.length)
    told ||= value.kind !== kindOf(value.bytes) || name === idHeaderName || name === headerKindsName
  }
  if (id !== undefined) {
    count++
    bytes += entryBytes(idHeaderName.length, idBytes)
  }
  const kinds = told ? formatHeaderKinds(Array.from(headers, ([, value]) => value.kind)) : undefined
  if (kinds !== undefined) {
    count++
    bytes += entryBytes(headerKindsName.length, kinds.length)
  }
  return { headers, id, kinds, count, bytes: varintBytes(count) + bytes }
}

/** Writes what was planned; answers the position behind it. */
export function putHeaders(plan: HeaderPlan, bytes: Buffer, start: number): number {
  let position = putVarint(plan.count, bytes, start)
  for (const [name, value] of plan.headers) {
    position = putName(name, bytes, position)
    position = putVarint(value.bytes.length, bytes, position)
    bytes.set(value.bytes, position)
    position += value.bytes.length
  }
  if (plan.id !== undefined) {
    position = putVarint(idBytes, bytes, putName(idHeaderName, bytes, position))
    position = bytes.writeBigUInt64BE(plan.id >> 64n, position)
    position = bytes.writeBigUInt64BE(plan.id & low64, position)
  }
  if (plan.kinds !== undefined) position = putName(plan.kinds, bytes, putName(headerKindsName, bytes, position))
  return position
}

/** A record's own headers and its id. */
export interface ReadHeaders {
  readonly headers: Headers
  readonly id: MessageId | undefined
}

/** A record without headers. */
export const noHeaders: ReadHeaders = { headers: Headers.empty, id: undefined }

/**
 * The headers in a block that begins with their count.
 * @throws DecodeError when the block does not hold what it says, or a name is not UTF-8
 */
export function readHeaders(block: Buffer): ReadHeaders {
  const cursor = { position: 0 }
  const count = readVarint(block, cursor)
  if (count < 0 || count * 2 > block.length) {
    throw new DecodeError(`a header block of ${block.length} bytes says it has ${count} headers`)
  }
  const names: string[] = []
  const values: (Uint8Array | null)[] = []
  for (let i = 0; i < count; i++) {
    const name = readBytes(block, cursor)
    if (name === null) throw new DecodeError(`header ${i} has no name`)
    names.push(decodeName(name))
    values.push(readBytes(block, cursor))
  }
  if (cursor.position !== block.length) {
    throw new DecodeError(`a header block of ${block.length} bytes ends after ${cursor.position}`)
  }
  return interpret(names, values)
}

function interpret(names: readonly string[], values: readonly (Uint8Array | null)[]): ReadHeaders {
  const typesAt = names.lastIndexOf(headerKindsName)
  const told = typesAt < 0 ? undefined : toldKinds(values[typesAt] as Uint8Array | null, typesAt)
  const idAt = told === undefined ? names.lastIndexOf(idHeaderName) : told.length < typesAt ? typesAt - 1 : -1
  const idValue = names[idAt] === idHeaderName ? values[idAt] : undefined
  const id = idValue != null && idValue.length === idBytes ? toId(idValue) : undefined
  const entries: (readonly [string, HeaderValue])[] = []
  for (let i = 0; i < names.length; i++) {
    if ((i === typesAt && told !== undefined) || (i === idAt && id !== undefined)) continue
    const bytes = values[i] ?? new Uint8Array(0)
    const kind = told?.[i] ?? (values[i] === null ? "raw" : kindOf(bytes))
    entries.push([names[i] as string, HeaderValue.fromBytes(headerKindCodes[kind], bytes)])
  }
  return { headers: Headers.ofStored(entries), id }
}

/** The kinds of the headers before `typesAt`, the id's left out. A header of that name with another content is not ours. */
function toldKinds(value: Uint8Array | null, typesAt: number): HeaderKind[] | undefined {
  if (value === null || (value.length !== typesAt && value.length !== typesAt - 1)) return undefined
  try {
    return parseHeaderKinds(Buffer.from(value).toString("latin1"), value.length)
  } catch (error) {
    if (error instanceof DecodeError) return undefined
    throw error
  }
}

function kindOf(bytes: Uint8Array): "string" | "raw" {
  return isUtf8(bytes) ? "string" : "raw"
}

/** Ids are 1 to 2^128 − 1: zero is none. */
function toId(bytes: Uint8Array): MessageId | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const id = (view.getBigUint64(0) << 64n) | view.getBigUint64(8)
  return id === 0n ? undefined : id
}

function entryBytes(name: number, value: number): number {
  return varintBytes(name) + name + varintBytes(value) + value
}

function putName(name: string, bytes: Buffer, start: number): number {
  const length = Buffer.byteLength(name)
  const position = putVarint(length, bytes, start)
  return position + bytes.write(name, position, length, "utf8")
}

function readBytes(block: Buffer, cursor: { position: number }): Uint8Array | null {
  const length = readVarint(block, cursor)
  if (length === -1) return null
  const start = cursor.position
  if (length < 0 || length > block.length - start) {
    throw new DecodeError(`a header block of ${block.length} bytes holds no ${length} bytes at ${start}`)
  }
  cursor.position = start + length
  return new Uint8Array(block.buffer, block.byteOffset + start, length)
}

function readVarint(block: Buffer, cursor: { position: number }): number {
  let zigzag = 0
  for (let shift = 0; shift < 35; shift += 7) {
    const byte = block[cursor.position++]
    if (byte === undefined) break
    zigzag |= (byte & 0x7f) << shift
    if (byte < 0x80) return (zigzag >>> 1) ^ -(zigzag & 1)
  }
  throw new DecodeError("a header block ends within a number")
}

function decodeName(bytes: Uint8Array): string {
  try {
    return strictUtf8.decode(bytes)
  } catch (cause) {
    throw new DecodeError("a header name is not valid UTF-8", { cause })
  }
}
