/**
 * The part of CBOR (RFC 8949) that reports of statistics need: whole numbers, texts, arrays, maps with text keys and null are written,
 * in the shortest form; whatever is well-formed is read.
 *
 *     first byte: 3 bits major type, 5 bits argument (0–23: itself; 24–27: in the 1, 2, 4, 8 bytes behind; 31: indefinite length)
 *     0 unsigned · 1 negative (−1 − argument) · 2 bytes · 3 text · 4 array · 5 map · 6 tag · 7 simple values and floats
 */

/** What is written. A number is whole, from 0 to 2^53 − 1. */
export type CborValue = number | string | null | readonly CborValue[] | { readonly [key: string]: CborValue }

/** Deeper nesting is refused, so that no input can exhaust the stack. */
const deepest = 16

const utf8 = new TextEncoder()
const strictUtf8 = new TextDecoder("utf-8", { fatal: true })

/** @throws RangeError for a number that is not whole, or below 0 */
export function encodeCbor(value: CborValue): Uint8Array {
  const parts: Uint8Array[] = []
  write(value, parts)
  return Buffer.concat(parts)
}

/**
 * Reads one value that fills the bytes. Maps become `Map`s, whole numbers that are not safe as numbers bigints, tags are left out.
 * @throws SyntaxError for bytes that are not one well-formed value, or nested deeper than 16
 */
export function decodeCbor(bytes: Uint8Array): unknown {
  const reader = new CborReader(bytes)
  const value = reader.value(0)
  reader.assertEnd()
  return value
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

/** Marks the end of an item of indefinite length. */
const stop: unique symbol = Symbol("stop")

class CborReader {
  readonly #bytes: Uint8Array
  readonly #view: DataView
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  assertEnd(): void {
    if (this.#at !== this.#bytes.length) throw this.#malformed("bytes are left behind the value")
  }

  value(depth: number): unknown {
    const value = this.#item(depth)
    if (value === stop) throw this.#malformed("a stop without a beginning")
    return value
  }

  #item(depth: number): unknown {
    if (depth > deepest) throw this.#malformed(`nested deeper than ${deepest}`)
    const first = this.#bytes[this.#skip(1)] as number
    const major = first >> 5
    const info = first & 31
    if (major === 7) return this.#simple(info)
    const endless = info === 31 && major >= 2 && major <= 5
    const argument = endless ? 0 : this.#argument(info)
    switch (major) {
      case 0:
        return argument
      case 1:
        return typeof argument === "bigint" ? -1n - argument : -1 - argument
      case 2:
      case 3:
        return endless ? this.#chunks(major) : this.#string(major, argument)
      case 4:
        return this.#list(endless, Number(argument), depth)
      case 5:
        return this.#map(endless, Number(argument), depth)
      default:
        return this.value(depth + 1)
    }
  }

  #argument(info: number): number | bigint {
    if (info < 24) return info
    switch (info) {
      case 24:
        return this.#view.getUint8(this.#skip(1))
      case 25:
        return this.#view.getUint16(this.#skip(2))
      case 26:
        return this.#view.getUint32(this.#skip(4))
      case 27: {
        const wide = this.#view.getBigUint64(this.#skip(8))
        return wide <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(wide) : wide
      }
      default:
        throw this.#malformed(`argument ${info} is reserved`)
    }
  }

  #string(major: number, length: number | bigint): string | Uint8Array {
    const start = this.#skip(Number(length))
    const bytes = this.#bytes.subarray(start, this.#at)
    if (major === 2) return bytes
    try {
      return strictUtf8.decode(bytes)
    } catch {
      throw this.#malformed("a text is not UTF-8")
    }
  }

  #chunks(major: number): string | Uint8Array {
    const chunks: (string | Uint8Array)[] = []
    for (;;) {
      const first = this.#bytes[this.#skip(1)] as number
      if (first === 0xff) break
      if (first >> 5 !== major) throw this.#malformed("a string has a part of another type")
      chunks.push(this.#string(major, this.#argument(first & 31)))
    }
    return major === 3 ? chunks.join("") : Buffer.concat(chunks as Uint8Array[])
  }

  #list(endless: boolean, count: number, depth: number): unknown[] {
    const list: unknown[] = []
    while (endless || list.length < count) {
      const item = this.#item(depth + 1)
      if (item === stop) {
        if (endless) break
        throw this.#malformed("a list ends early")
      }
      list.push(item)
    }
    return list
  }

  #map(endless: boolean, count: number, depth: number): Map<unknown, unknown> {
    const map = new Map<unknown, unknown>()
    for (let entries = 0; endless || entries < count; entries++) {
      const key = this.#item(depth + 1)
      if (key === stop) {
        if (endless) break
        throw this.#malformed("a map ends early")
      }
      map.set(key, this.value(depth + 1))
    }
    return map
  }

  #simple(info: number): unknown {
    switch (info) {
      case 20:
        return false
      case 21:
        return true
      case 22:
        return null
      case 23:
        return undefined
      case 24: {
        const code = this.#bytes[this.#skip(1)] as number
        if (code < 32) throw this.#malformed(`simple value ${code} in two bytes`)
        return undefined
      }
      case 25:
        return half(this.#view.getUint16(this.#skip(2)))
      case 26:
        return this.#view.getFloat32(this.#skip(4))
      case 27:
        return this.#view.getFloat64(this.#skip(8))
      case 31:
        return stop
      default:
        if (info < 20) return undefined
        throw this.#malformed(`simple value ${info} is reserved`)
    }
  }

  /** Where the next bytes begin; they are then behind. */
  #skip(length: number): number {
    const start = this.#at
    if (length > this.#bytes.length - start) throw this.#malformed("the bytes end within a value")
    this.#at += length
    return start
  }

  #malformed(what: string): SyntaxError {
    return new SyntaxError(`CBOR at byte ${this.#at}: ${what}`)
  }
}

/** 1 bit sign, 5 bits exponent, 10 bits fraction (RFC 8949, appendix D). */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}
