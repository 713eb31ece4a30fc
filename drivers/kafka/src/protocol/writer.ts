/** Writes Kafka's primitive types (protocol guide, "Protocol Primitive Types") into one growing buffer. */
import { InvalidError } from "@millrace/contract"

const firstBytes = 512
/** Records of at least so many bytes are not copied but handed on as a chunk of their own. */
const ownChunkBytes = 1 << 10
/** A frame's length is a signed 32-bit number. */
const longestFrameBytes = 0x7fffffff
const longestShortString = 0x7fff

/** One message under way. Used once: `chunks` or `frame` ends it. */
export class Writer {
  #bytes: Buffer = Buffer.allocUnsafe(firstBytes)
  #position = 0
  /** What stands before the present segment. */
  #chunks: Uint8Array[] = []
  #chunkBytes = 0
  #segment = 0

  int8(value: number): void {
    this.#need(1)
    this.#position = this.#bytes.writeInt8(value, this.#position)
  }

  int16(value: number): void {
    this.#need(2)
    this.#position = this.#bytes.writeInt16BE(value, this.#position)
  }

  int32(value: number): void {
    this.#need(4)
    this.#position = this.#bytes.writeInt32BE(value, this.#position)
  }

  int64(value: bigint): void {
    this.#need(8)
    this.#position = this.#bytes.writeBigInt64BE(value, this.#position)
  }

  /** Base-128, least significant group first; 0 to 2^32 − 1. */
  unsignedVarint(value: number): void {
    this.#need(5)
    let rest = value >>> 0
    while (rest > 0x7f) {
      this.#bytes[this.#position++] = (rest & 0x7f) | 0x80
      rest >>>= 7
    }
    this.#bytes[this.#position++] = rest
  }

  /** @throws InvalidError for a text that is not the base64url form of 16 bytes */
  uuid(text: string): void {
    this.#need(16)
    if (text.length !== 22 || this.#bytes.write(text, this.#position, 16, "base64url") !== 16) {
      throw new InvalidError(`${JSON.stringify(text)} is no UUID in its base64url form of 22 characters`)
    }
    this.#position += 16
  }

  /** A string behind a 16-bit length. */
  string(text: string): void {
    const length = Buffer.byteLength(text)
    if (length > longestShortString) {
      throw new InvalidError(
        `a string of ${length} bytes is too long for Kafka: at most ${longestShortString} are allowed`,
      )
    }
    this.int16(length)
    this.#utf8(text, length)
  }

  /** A string behind its length + 1 as a varint. */
  compactString(text: string): void {
    const length = Buffer.byteLength(text)
    if (length > longestShortString) {
      throw new InvalidError(
        `a string of ${length} bytes is too long for Kafka: at most ${longestShortString} are allowed`,
      )
    }
    this.unsignedVarint(length + 1)
    this.#utf8(text, length)
  }

  /** Bytes without a length, copied. */
  raw(bytes: Uint8Array): void {
    this.#need(bytes.length)
    this.#bytes.set(bytes, this.#position)
    this.#position += bytes.length
  }

  /** Bytes without a length; a large array becomes a chunk of its own and must stay as it is until the frame was sent. */
  records(bytes: Uint8Array): void {
    if (bytes.length < ownChunkBytes) {
      this.raw(bytes)
      return
    }
    this.#endSegment()
    this.#push(bytes)
  }

  /** What `write` writes, behind its length as a varint. It must not be `records`. */
  sized(write: () => void): void {
    this.#need(1)
    // Counted from the segment, which moves when the buffer grows.
    const start = this.#position - this.#segment
    this.#position++
    write()
    const length = this.#position - this.#segment - start - 1
    const more = varintBytes(length) - 1
    this.#need(more + 4)
    const at = this.#segment + start
    if (more > 0) this.#bytes.copyWithin(at + 1 + more, at + 1, at + 1 + length)
    this.#position = at
    this.unsignedVarint(length)
    this.#position = at + 1 + more + length
  }

  /** Everything written, as chunks to be sent one behind the other. The writer must not be used afterwards. */
  chunks(): Uint8Array[] {
    this.#endSegment()
    return this.#chunks
  }

  /** The same with the first four bytes, which were left free, set to the length of what follows them. */
  frame(): Uint8Array[] {
    const length = this.#chunkBytes + this.#position - this.#segment - 4
    if (length > longestFrameBytes) {
      throw new InvalidError(
        `a request of ${length} bytes is too long for Kafka: at most ${longestFrameBytes} are allowed`,
      )
    }
    const chunks = this.chunks()
    const first = chunks[0] as Uint8Array
    new DataView(first.buffer, first.byteOffset).setInt32(0, length)
    return chunks
  }

  #utf8(text: string, length: number): void {
    this.#need(length)
    this.#bytes.write(text, this.#position, length, "utf8")
    this.#position += length
  }

  #endSegment(): void {
    if (this.#position > this.#segment) this.#push(this.#bytes.subarray(this.#segment, this.#position))
    this.#segment = this.#position
  }

  #push(chunk: Uint8Array): void {
    this.#chunks.push(chunk)
    this.#chunkBytes += chunk.length
  }

  #need(bytes: number): void {
    const needed = this.#position + bytes
    if (needed <= this.#bytes.length) return
    const segment = this.#bytes.subarray(this.#segment, this.#position)
    const larger = Buffer.allocUnsafe(Math.max(segment.length + bytes, this.#bytes.length * 2))
    larger.set(segment)
    this.#bytes = larger
    this.#position = segment.length
    this.#segment = 0
  }
}

function varintBytes(value: number): number {
  let bytes = 1
  for (let rest = value >>> 7; rest > 0; rest >>>= 7) bytes++
  return bytes
}
