/** The numbers and texts of a journal record: LEB128 varints, UTF-8 behind its length. */
import { CorruptionError } from "@millrace/contract"

const utf8 = new TextEncoder()
const text = new TextDecoder("utf-8", { fatal: true })

/** Writes one record. It grows as needed. */
export class JournalWriter {
  #bytes: Uint8Array = new Uint8Array(256)
  #length = 0

  /** A whole number from 0 to 2^53 − 1. */
  number(value: number): void {
    this.#reserve(8)
    let rest = value
    while (rest >= 0x80) {
      this.#bytes[this.#length++] = (rest % 0x80) | 0x80
      rest = Math.floor(rest / 0x80)
    }
    this.#bytes[this.#length++] = rest
  }

  /** A bigint from 0 to 2^128 − 1. */
  big(value: bigint): void {
    this.#reserve(19)
    let rest = value
    while (rest >= 0x80n) {
      this.#bytes[this.#length++] = Number(rest & 0x7fn) | 0x80
      rest >>= 7n
    }
    this.#bytes[this.#length++] = Number(rest)
  }

  text(value: string): void {
    const bytes = utf8.encode(value)
    this.number(bytes.length)
    this.#reserve(bytes.length)
    this.#bytes.set(bytes, this.#length)
    this.#length += bytes.length
  }

  /** What was written. The writer must not be used afterwards. */
  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length)
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return
    const grown = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + more))
    grown.set(this.#bytes)
    this.#bytes = grown
  }
}

/** Reads what a `JournalWriter` wrote. @throws CorruptionError when the bytes end too early or are no such numbers or texts */
export class JournalReader {
  readonly #bytes: Uint8Array
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length
  }

  number(): number {
    let value = 0
    let scale = 1
    for (;;) {
      const byte = this.#byte()
      value += (byte & 0x7f) * scale
      if (byte < 0x80) break
      scale *= 0x80
      if (scale > Number.MAX_SAFE_INTEGER) throw broken("a number is too long")
    }
    if (value > Number.MAX_SAFE_INTEGER) throw broken("a number is too large")
    return value
  }

  big(): bigint {
    let value = 0n
    for (let shift = 0n; shift < 133n; shift += 7n) {
      const byte = this.#byte()
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
    throw broken("a number is too long")
  }

  text(): string {
    const length = this.number()
    if (length > this.#bytes.length - this.#at) throw broken("a text ends too early")
    const bytes = this.#bytes.subarray(this.#at, this.#at + length)
    this.#at += length
    try {
      return text.decode(bytes)
    } catch (error) {
      throw new CorruptionError("the journal of the spool is damaged: a text is not UTF-8", { cause: error })
    }
  }

  #byte(): number {
    const byte = this.#bytes[this.#at]
    if (byte === undefined) throw broken("a record ends too early")
    this.#at++
    return byte
  }
}

function broken(how: string): CorruptionError {
  return new CorruptionError(`the journal of the spool is damaged: ${how}`)
}
