/** Reads Kafka's primitive types (protocol guide, "Protocol Primitive Types"). */
import { MillraceError } from "@millrace/contract"

/**
 * A position in a message. Every length is checked against the bytes that are there before anything is made of it.
 * @throws MillraceError of kind `protocol` from any method when the bytes end or contradict themselves
 */
export class Reader {
  readonly #bytes: Buffer
  #position: number

  constructor(bytes: Uint8Array, start: number = 0) {
    this.#bytes = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    this.#position = start
  }

  /** Bytes that have not been read. */
  get left(): number {
    return this.#bytes.length - this.#position
  }

  int8(): number {
    const position = this.#take(1)
    return this.#bytes.readInt8(position)
  }

  int16(): number {
    const position = this.#take(2)
    return this.#bytes.readInt16BE(position)
  }

  int32(): number {
    const position = this.#take(4)
    return this.#bytes.readInt32BE(position)
  }

  int64(): bigint {
    const position = this.#take(8)
    return this.#bytes.readBigInt64BE(position)
  }

  /** 0 to 2^32 − 1, in at most five bytes. */
  unsignedVarint(): number {
    let value = 0
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.#bytes[this.#take(1)] as number
      value |= (byte & 0x7f) << shift
      if (byte < 0x80) return value >>> 0
    }
    throw malformed("a varint is longer than five bytes")
  }

  /** As Kafka prints it: base64url. */
  uuid(): string {
    const position = this.#take(16)
    return this.#bytes.toString("base64url", position, position + 16)
  }

  text(length: number): string {
    const position = this.#take(length)
    return this.#bytes.toString("utf8", position, position + length)
  }

  /** A view, not a copy. */
  view(length: number): Uint8Array {
    const position = this.#take(length)
    return this.#bytes.subarray(position, position + length)
  }

  skip(length: number): void {
    this.#take(length)
  }

  /** Checks a count of elements that take at least so many bytes each. */
  count(count: number, leastBytes: number): number {
    if (count < 0 || count * leastBytes > this.left) {
      throw malformed(`${count} elements of at least ${leastBytes} bytes do not fit into ${this.left}`)
    }
    return count
  }

  #take(length: number): number {
    const position = this.#position
    if (length < 0 || length > this.#bytes.length - position) {
      throw malformed(`${length} bytes are wanted at ${position} of ${this.#bytes.length}`)
    }
    this.#position = position + length
    return position
  }
}

/** The error for bytes that are no message. */
export function malformed(detail: string): MillraceError {
  return new MillraceError("protocol", detail)
}
