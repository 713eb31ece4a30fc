/** Writes little-endian values one after the other into a buffer that grows. */
import { InvalidError } from "@millrace/contract"

/** Requests above the frame limit of the server (64 MiB) are refused before they are sent, so that is also the end of growth. */
const mostBytes = 64 << 20

export class ByteWriter {
  #buffer: Buffer
  #length = 0

  constructor(sizeHintBytes = 256) {
    this.#buffer = Buffer.allocUnsafe(Math.max(16, sizeHintBytes))
  }

  /** Bytes written so far. */
  get length(): number {
    return this.#length
  }

  /** A view of what was written. Later writes may move elsewhere. */
  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length)
  }

  u8(value: number): void {
    const at = this.#room(1)
    this.#buffer.writeUInt8(value, at)
  }
  u16(value: number): void {
    const at = this.#room(2)
    this.#buffer.writeUInt16LE(value, at)
  }
  u32(value: number): void {
    const at = this.#room(4)
    this.#buffer.writeUInt32LE(value, at)
  }
  u64(value: bigint): void {
    const at = this.#room(8)
    this.#buffer.writeBigUInt64LE(value, at)
  }
  u128(value: bigint): void {
    this.u64(BigInt.asUintN(64, value))
    this.u64(value >> 64n)
  }
  f32(value: number): void {
    const at = this.#room(4)
    this.#buffer.writeFloatLE(value, at)
  }
  raw(value: Uint8Array): void {
    const at = this.#room(value.length)
    this.#buffer.set(value, at)
  }
  zeros(count: number): void {
    const at = this.#room(count)
    this.#buffer.fill(0, at, at + count)
  }

  /** Puts a length or count over four bytes that were written before. */
  setU32(at: number, value: number): void {
    this.#buffer.writeUInt32LE(value, at)
  }

  #room(bytes: number): number {
    const at = this.#length
    const needed = at + bytes
    if (needed > this.#buffer.length) {
      if (needed > mostBytes)
        throw new InvalidError(
          `a request of ${needed} bytes is above the frame limit of Apache Iggy, ${mostBytes} bytes`,
        )
      const larger = Buffer.allocUnsafe(Math.min(mostBytes, Math.max(needed, this.#buffer.length * 2)))
      this.#buffer.copy(larger, 0, 0, at)
      this.#buffer = larger
    }
    this.#length = needed
    return at
  }
}
