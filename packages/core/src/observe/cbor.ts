/**
 * The part of CBOR (RFC 8949) that reports of statistics are written with: whole numbers, texts, arrays, maps with text keys and null, in
 * the shortest form. `readCbor` reads it back.
 *
 *     first byte: 3 bits major type, 5 bits argument (0–23: itself; 24–27: in the 1, 2, 4, 8 bytes behind; 31: indefinite length)
 *     0 unsigned · 1 negative (−1 − argument) · 2 bytes · 3 text · 4 array · 5 map · 6 tag · 7 simple values and floats
 */

/** What is written. A number is whole, from 0 to 2^53 − 1. */
export type CborValue = number | string | null | readonly CborValue[] | { readonly [key: string]: CborValue }

const utf8 = new TextEncoder()

/** @throws RangeError for a number that is not whole, or below 0 */
export function encodeCbor(value: CborValue): Uint8Array {
  const parts: Uint8Array[] = []
  write(value, parts)
  return Buffer.concat(parts)
}

function write(value: CborValue, parts: Uint8Array[]): void {
  if (value === null) parts.push(Uint8Array.of(0xf6))
  else if (typeof value === "number") parts.push(head(0, value))
  else if (typeof value === "string") {
    const text = utf8.encode(value)
    parts.push(head(3, text.length), text)
  } else if (isList(value)) {
    parts.push(head(4, value.length))
    for (const item of value) write(item, parts)
  } else {
    const entries = Object.entries(value)
    parts.push(head(5, entries.length))
    for (const [key, item] of entries) {
      write(key, parts)
      write(item, parts)
    }
  }
}

function isList(value: object): value is readonly CborValue[] {
  return Array.isArray(value)
}

function head(major: number, argument: number): Uint8Array {
  if (!Number.isSafeInteger(argument) || argument < 0) throw new RangeError(`${argument} is not a whole number from 0`)
  const type = major << 5
  if (argument < 24) return Uint8Array.of(type | argument)
  if (argument < 0x100) return Uint8Array.of(type | 24, argument)
  const bytes = new Uint8Array(argument < 0x10000 ? 3 : argument < 0x1_0000_0000 ? 5 : 9)
  const view = new DataView(bytes.buffer)
  bytes[0] = type | (bytes.length === 3 ? 25 : bytes.length === 5 ? 26 : 27)
  if (bytes.length === 3) view.setUint16(1, argument)
  else if (bytes.length === 5) view.setUint32(1, argument)
  else view.setBigUint64(1, BigInt(argument))
  return bytes
}
