/**
 * Reads CBOR (RFC 8949): whatever is well-formed. Whole numbers that are not safe as numbers, and bignums (tags 2 and 3), become bigints;
 * other tags are left out; maps become `Map`s; `undefined` and unknown simple values become `null`.
 */

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
const stop: unique symbol = Symbol("stop")

/** A bignum of more bytes stays bytes. */
const longestBignumBytes = 256

/**
 * One value that fills the bytes.
 * @param deepest Deeper nesting is refused, so that no input can exhaust the stack.
 * @throws SyntaxError for bytes that are not one well-formed value, or are nested deeper
 */
export function readCbor(bytes: Uint8Array, { deepest }: { readonly deepest: number }): unknown {
  const reader = new CborReader(bytes, deepest)
  const value = reader.value(0)
  reader.assertEnd()
  return value
}

class CborReader {
  readonly #bytes: Uint8Array
  readonly #view: DataView
  readonly #deepest: number
  #at = 0

  constructor(bytes: Uint8Array, deepest: number) {
    this.#deepest = deepest
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
    if (depth > this.#deepest) throw this.#malformed(`nested deeper than ${this.#deepest}`)
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
        return negative(argument)
      case 2:
      case 3:
        return endless ? this.#chunks(major) : this.#string(major, argument)
      case 4:
        return this.#list(endless, Number(argument), depth)
      case 5:
        return this.#map(endless, Number(argument), depth)
      default:
        return tagged(Number(argument), this.value(depth + 1))
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
      case 27:
        return safe(this.#view.getBigUint64(this.#skip(8)))
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
      if (first >> 5 !== major || (first & 31) === 31) throw this.#malformed("a string has a part of another type")
      chunks.push(this.#string(major, this.#argument(first & 31)))
    }
    return major === 3 ? chunks.join("") : joined(chunks as Uint8Array[])
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
      case 24:
        if ((this.#bytes[this.#skip(1)] as number) < 32) throw this.#malformed("a small simple value in two bytes")
        return null
      case 25:
        return half(this.#view.getUint16(this.#skip(2)))
      case 26:
        return this.#view.getFloat32(this.#skip(4))
      case 27:
        return this.#view.getFloat64(this.#skip(8))
      case 28:
      case 29:
      case 30:
        throw this.#malformed(`simple value ${info} is reserved`)
      case 31:
        return stop
      default:
        return null
    }
  }

  #skip(count: number): number {
    const start = this.#at
    if (count > this.#bytes.length - start) throw this.#malformed("the bytes end within a value")
    this.#at += count
    return start
  }

  #malformed(reason: string): SyntaxError {
    return new SyntaxError(`CBOR at byte ${this.#at}: ${reason}`)
  }
}

function negative(argument: number | bigint): number | bigint {
  if (typeof argument === "bigint") return -1n - argument
  return argument < Number.MAX_SAFE_INTEGER ? -1 - argument : -1n - BigInt(argument)
}

function tagged(tag: number, value: unknown): unknown {
  if ((tag !== 2 && tag !== 3) || !(value instanceof Uint8Array) || value.length > longestBignumBytes) return value
  let magnitude = 0n
  for (const byte of value) magnitude = (magnitude << 8n) | BigInt(byte)
  return safe(tag === 2 ? magnitude : -1n - magnitude)
}

function safe(value: bigint): number | bigint {
  const limit = BigInt(Number.MAX_SAFE_INTEGER)
  return value <= limit && value >= -limit ? Number(value) : value
}

/** A float of 16 bits (RFC 8949, appendix D). */
function half(bits: number): number {
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  const sign = (bits & 0x8000) !== 0 ? -1 : 1
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

function joined(chunks: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(chunks.reduce((bytes, chunk) => bytes + chunk.length, 0))
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
  }
  return whole
}
