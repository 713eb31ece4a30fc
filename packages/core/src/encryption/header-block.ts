/**
 * A record's headers as they stand in its plaintext. Numbers are big-endian.
 *
 * | bytes | what |
 * | --- | --- |
 * | 4 | length of all that follows |
 * | | for each header, in order: |
 * | 2, n | length of the name, name in UTF-8 |
 * | 1 | kind, by its code |
 * | 4, n | length of the value, value |
 */
import type { Buffer } from "node:buffer"
import { DecodeError, Headers, HeaderValue, headerKindCodes } from "@millrace/contract"

const lengthBytes = 4
const entryOverhead = 2 + 1 + 4
const utf8 = new TextEncoder()
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** The bytes of the block, its own length included. */
export function headerBlockBytes(headers: Headers): number {
  let bytes = lengthBytes
  for (const [name, value] of headers) bytes += entryOverhead + utf8.encode(name).length + value.bytes.length
  return bytes
}

/** Writes the block at the start of `target`, and answers where it ends. */
export function writeHeaderBlock(target: Buffer, headers: Headers): number {
  let at = lengthBytes
  for (const [name, value] of headers) {
    const nameBytes = target.write(name, at + 2)
    at = target.writeUInt16BE(nameBytes, at) + nameBytes
    at = target.writeUInt8(headerKindCodes[value.kind], at)
    at = target.writeUInt32BE(value.bytes.length, at)
    target.set(value.bytes, at)
    at += value.bytes.length
  }
  target.writeUInt32BE(at - lengthBytes)
  return at
}

/** The headers, and where their block ends. @throws DecodeError when the block contradicts itself */
export function readHeaderBlock(bytes: Uint8Array): { readonly headers: Headers; readonly end: number } {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (bytes.length < lengthBytes) throw malformed()
  const end = lengthBytes + view.getUint32(0)
  if (end > bytes.length) throw malformed()
  const entries: (readonly [string, HeaderValue])[] = []
  let at = lengthBytes
  while (at < end) {
    if (end - at < entryOverhead) throw malformed()
    const nameEnd = at + 2 + view.getUint16(at)
    if (end - nameEnd < 1 + 4) throw malformed()
    const valueStart = nameEnd + 1 + 4
    const valueBytes = view.getUint32(nameEnd + 1)
    if (valueBytes > end - valueStart) throw malformed()
    const value = bytes.subarray(valueStart, valueStart + valueBytes)
    entries.push([textOf(bytes.subarray(at + 2, nameEnd)), HeaderValue.fromBytes(view.getUint8(nameEnd), value)])
    at = valueStart + valueBytes
  }
  return { headers: Headers.ofStored(entries), end }
}

function textOf(bytes: Uint8Array): string {
  try {
    return strictUtf8.decode(bytes)
  } catch (cause) {
    throw new DecodeError("the name of a decrypted header is not UTF-8", { cause })
  }
}

function malformed(): DecodeError {
  return new DecodeError("its decrypted header block contradicts itself")
}
