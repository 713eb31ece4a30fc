/**
 * What of a record Apache Iggy has no field for travels in its user headers, first of all:
 *
 * | header | value | meaning |
 * | --- | --- | --- |
 * | `millrace-null` | u8, bit 1 | the payload is absent, not empty |
 * | | bit 2 | the key is there and empty |
 * | `millrace-key` | raw | the key |
 * | `millrace-null` | u8 4 | the header before it is empty: its value, a zero byte, stands for none |
 *
 * Everything else is the record's headers as they are: in their order, names repeated, each value with its kind. Clients that keep headers
 * in a map see the last of each name.
 */
import { DecodeError, Headers, HeaderValue, headerKindCodes, hex, RecordTooLargeError } from "@millrace/contract"
import { messageLimits } from "./layout.ts"

const keyName = "millrace-key"
const nullName = "millrace-null"
const flags = { nullPayload: 1, emptyKey: 2, emptyBefore: 4 } as const

const textKind = headerKindCodes.string
/** What an entry has beside name and value: two kinds, two lengths. */
const entryOverhead = 10

const keyPrefix = Buffer.concat([entryHead(keyName, headerKindCodes.raw)])
const nullPrefix = Buffer.concat([entryHead(nullName, headerKindCodes.uint8), Buffer.from([1, 0, 0, 0])])
/** A whole `millrace-null` entry. */
const nullEntryBytes: number = nullPrefix.length + 1

export interface HeaderSource {
  readonly payload: Uint8Array | null
  readonly key: Uint8Array | null
  readonly headers: Headers
}

/** The bytes that the user headers of a record take. @throws RecordTooLargeError when one of them is above a limit */
export function userHeadersBytes({ payload, key, headers }: HeaderSource): number {
  let bytes = 0
  if (payload === null || key?.length === 0) bytes += nullEntryBytes
  if (key !== null && key.length > 0) {
    if (key.length > messageLimits.keyBytes) throw tooLarge("a key", key.length, messageLimits.keyBytes)
    bytes += keyPrefix.length + 4 + key.length
  }
  if (headers.size > 0) {
    for (const [name, value] of headers) {
      const nameBytes = Buffer.byteLength(name)
      const valueBytes = value.bytes.length
      if (nameBytes > messageLimits.headerNameBytes)
        throw tooLarge("a header name", nameBytes, messageLimits.headerNameBytes)
      if (valueBytes > messageLimits.headerValueBytes)
        throw tooLarge(`header ${JSON.stringify(name)}`, valueBytes, messageLimits.headerValueBytes)
      bytes += entryOverhead + nameBytes + (valueBytes === 0 ? 1 + nullEntryBytes : valueBytes)
    }
  }
  if (bytes > messageLimits.headersBytes) throw tooLarge("all headers of the record", bytes, messageLimits.headersBytes)
  return bytes
}

/** Writes them at `at`, where `userHeadersBytes` bytes are free. */
export function writeUserHeaders(target: Buffer, at: number, { payload, key, headers }: HeaderSource): void {
  let position = at
  if (payload === null || key?.length === 0) {
    const value = (payload === null ? flags.nullPayload : 0) | (key?.length === 0 ? flags.emptyKey : 0)
    position = writeNull(target, position, value)
  }
  if (key !== null && key.length > 0) {
    put(keyPrefix, target, position)
    position = writeField(target, position + keyPrefix.length, key)
  }
  if (headers.size === 0) return
  for (const [name, value] of headers) {
    target[position] = textKind
    const nameBytes = target.write(name, position + 5)
    target.writeUInt32LE(nameBytes, position + 1)
    position += 5 + nameBytes
    target[position++] = headerKindCodes[value.kind]
    if (value.bytes.length > 0) position = writeField(target, position, value.bytes)
    else position = writeNull(target, writeField(target, position, oneZero), flags.emptyBefore)
  }
}

/** The user headers of one message: a view of a batch's bytes. */
export interface HeaderBlock {
  readonly bytes: Buffer
  readonly from: number
  readonly to: number
}

/** Whether the payload is absent, where it has no bytes. Headers that cannot be read say nothing. */
export function isNullPayload(block: HeaderBlock): boolean {
  return (leadingFlags(block) & flags.nullPayload) !== 0
}

/** The key, or `null`. Headers that cannot be read have none. */
export function readKey(block: HeaderBlock): Uint8Array | null {
  const { bytes, from, to } = block
  if (from === to) return null
  let at = from
  if ((leadingFlags(block) & flags.emptyKey) !== 0) return view(bytes, from, from)
  if (startsWith(bytes, at, to, nullPrefix)) at += nullEntryBytes
  if (startsWith(bytes, at, to, keyPrefix)) {
    const valueAt = at + keyPrefix.length + 4
    if (valueAt <= to) {
      const length = bytes.readUInt32LE(valueAt - 4)
      if (length <= to - valueAt) return view(bytes, valueAt, valueAt + length)
    }
    return null
  }
  return foreignKey(block)
}

/** The record's own headers. @throws DecodeError when the block is malformed */
export function readHeaders({ bytes, from, to }: HeaderBlock): Headers {
  if (from === to) return Headers.empty
  const entries: (readonly [string, HeaderValue])[] = []
  let at = from
  while (at < to) {
    const name = field(bytes, at, to)
    const value = field(bytes, name.end, to)
    at = value.end
    const text = nameOf(name.kind, bytes.subarray(name.start, name.end))
    if (text === keyName) continue
    if (text === nullName) {
      const last = entries.at(-1)
      if (last !== undefined && bytes[value.start] === flags.emptyBefore) {
        entries[entries.length - 1] = [
          last[0],
          HeaderValue.fromBytes(headerKindCodes[last[1].kind], view(bytes, at, at)),
        ]
      }
      continue
    }
    entries.push([text, HeaderValue.fromBytes(value.kind, view(bytes, value.start, value.end))])
  }
  return Headers.ofStored(entries)
}

interface Field {
  readonly kind: number
  readonly start: number
  readonly end: number
}

const oneZero = Uint8Array.of(0)
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

function entryHead(name: string, valueKind: number): Buffer {
  const head = Buffer.alloc(5 + name.length + 1)
  head[0] = textKind
  head.writeUInt32LE(name.length, 1)
  head.write(name, 5)
  head[head.length - 1] = valueKind
  return head
}

/** Below so many bytes a loop is quicker than a native copy. */
const loopBelowBytes = 48

function put(source: Uint8Array, target: Buffer, at: number): void {
  const { length } = source
  if (length >= loopBelowBytes) target.set(source, at)
  else for (let i = 0; i < length; i++) target[at + i] = source[i] as number
}

function writeNull(target: Buffer, at: number, value: number): number {
  put(nullPrefix, target, at)
  target[at + nullPrefix.length] = value
  return at + nullEntryBytes
}

function writeField(target: Buffer, at: number, bytes: Uint8Array): number {
  const { length } = bytes
  target.writeUInt32LE(length, at)
  put(bytes, target, at + 4)
  return at + 4 + length
}

function leadingFlags({ bytes, from, to }: HeaderBlock): number {
  if (!startsWith(bytes, from, to, nullPrefix) || from + nullPrefix.length >= to) return 0
  return bytes[from + nullPrefix.length] as number
}

function startsWith(bytes: Buffer, from: number, to: number, prefix: Buffer): boolean {
  if (to - from < prefix.length) return false
  for (let i = 0; i < prefix.length; i++) if (bytes[from + i] !== prefix[i]) return false
  return true
}

/** Another client may have written a record of ours again, in an order of its own. */
function foreignKey({ bytes, from, to }: HeaderBlock): Uint8Array | null {
  if (bytes.subarray(from, to).indexOf(keyName) < 0) return null
  try {
    for (let at = from; at < to; ) {
      const name = field(bytes, at, to)
      const value = field(bytes, name.end, to)
      if (name.kind === textKind && bytes.toString("latin1", name.start, name.end) === keyName) {
        return view(bytes, value.start, value.end)
      }
      at = value.end
    }
  } catch (error) {
    // What cannot be read has no key; `readHeaders` tells why.
    if (!(error instanceof DecodeError)) throw error
  }
  return null
}

function field(bytes: Buffer, at: number, to: number): Field {
  if (to - at < 5)
    throw new DecodeError(`the headers of a record end in the middle of an entry (at byte ${at} of ${to})`)
  const kind = bytes[at] as number
  const length = bytes.readUInt32LE(at + 1)
  const start = at + 5
  if (kind === 0) throw new DecodeError("the headers of a record have an entry of kind 0")
  if (length < 1 || length > to - start)
    throw new DecodeError(`the headers of a record have a part of ${length} bytes where ${to - start} are left`)
  return { kind, start, end: start + length }
}

/** No `Buffer` leaves the driver. */
function view(bytes: Buffer, from: number, to: number): Uint8Array {
  return new Uint8Array(bytes.buffer, bytes.byteOffset + from, to - from)
}

/** Other clients may use numbers for names. */
function nameOf(kind: number, bytes: Buffer): string {
  if (kind === textKind) {
    try {
      return strictUtf8.decode(bytes)
    } catch (cause) {
      throw new DecodeError("a header's name is not UTF-8", { cause })
    }
  }
  const { value } = HeaderValue.fromBytes(kind, bytes)
  return value instanceof Uint8Array ? hex(value) : String(value)
}

function tooLarge(what: string, sizeBytes: number, limitBytes: number): RecordTooLargeError {
  return new RecordTooLargeError(`${what} has ${sizeBytes} bytes: Apache Iggy takes at most ${limitBytes}`, {
    context: { sizeBytes, limitBytes },
  })
}
