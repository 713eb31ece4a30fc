/**
 * Lz4 frames (lz4/lz4, `lz4_Frame_format.md`). All numbers are little-endian.
 *
 *     u32  magic
 *     u8   flags: version 01 in bits 6 and 7, 0x20 blocks are independent, 0x10 each has a checksum, 0x08 the content's size follows,
 *          0x04 a checksum of the content at the end, 0x01 a dictionary's id follows
 *     u8   the largest block in bits 4 to 6: 4 is 64 KiB, 5 256 KiB, 6 1 MiB, 7 4 MiB
 *     [ u64 size of the content ]   u8 second byte of the XXH32 of what stands between the magic and here
 *     blocks: u32 length, its top bit set when the block is not compressed; the block; [ u32 XXH32 of it ]
 *     u32  0   [ u32 XXH32 of the content ]
 *
 * Written as Kafka's Java client does (KIP-57: header checksum without the magic): independent blocks of 64 KiB, no other checksums.
 */
import { DecodeError } from "@millrace/contract"
import { lz4Bound, readLz4Block, writeLz4Block } from "./lz4-block.ts"
import { tooLong } from "./too-long.ts"
import { xxh32 } from "./xxh32.ts"

const magic = 0x184d2204
const flag = {
  version: 0x40,
  independent: 0x20,
  blockSums: 0x10,
  size: 0x08,
  contentSum: 0x04,
  reserved: 0x02,
  dictionary: 0x01,
} as const
const stored = 0x8000_0000
const writtenBlockCode = 4
const writtenBlockBytes = 64 << 10
/** How far back matches reach between blocks that are not independent. */
const windowBytes = 64 << 10
const firstOutputBytes = 64 << 10

/** Bytes as one frame. */
export function lz4Frame(bytes: Uint8Array): Buffer {
  const blocks = Math.ceil(bytes.length / writtenBlockBytes)
  const output = Buffer.allocUnsafe(11 + blocks * (4 + lz4Bound(Math.min(bytes.length, writtenBlockBytes))))
  output.writeUInt32LE(magic, 0)
  output[4] = flag.version | flag.independent
  output[5] = writtenBlockCode << 4
  output[6] = headerSum(output.subarray(4, 6))
  let write = 7
  for (let read = 0; read < bytes.length; read += writtenBlockBytes) {
    const block = bytes.subarray(read, read + writtenBlockBytes)
    const end = writeLz4Block(block, output, write + 4)
    const length = end - write - 4
    if (length < block.length) {
      output.writeUInt32LE(length, write)
      write = end
    } else {
      output.writeUInt32LE((block.length | stored) >>> 0, write)
      output.set(block, write + 4)
      write += 4 + block.length
    }
  }
  output.writeUInt32LE(0, write)
  return output.subarray(0, write + 4)
}

/** The content of one frame. @throws DecodeError when it is malformed, a checksum is wrong, or it is more than the limit */
export function readLz4Frame(bytes: Uint8Array, limitBytes: number): Buffer {
  const frame = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  const header = readHeader(frame)
  const output = new Output(limitBytes)
  let read = header.end
  for (;;) {
    const word = wordAt(frame, read)
    read += 4
    if (word === 0) break
    const length = word & 0x7fff_ffff
    const sumBytes = header.blockSums ? 4 : 0
    if (length > header.blockBytes || length + sumBytes > frame.length - read) {
      throw malformed(`a block of ${length} bytes does not fit`)
    }
    const block = frame.subarray(read, read + length)
    read += length
    if (header.blockSums && xxh32(block) !== wordAt(frame, read))
      throw malformed("the checksum of a block does not match")
    read += sumBytes
    if (word >= stored) output.add(block)
    else output.expand(block, { mostBytes: header.blockBytes, history: header.independent ? 0 : windowBytes })
  }
  const content = output.content
  if (header.size !== undefined && header.size !== BigInt(content.length)) {
    throw malformed(`it holds ${content.length} bytes, not ${header.size}`)
  }
  if (header.contentSum) {
    if (xxh32(content) !== wordAt(frame, read)) throw malformed("the checksum of the content does not match")
    read += 4
  }
  if (read !== frame.length) throw malformed(`${frame.length - read} bytes are left behind it`)
  return content
}

interface FrameHeader {
  readonly independent: boolean
  readonly blockSums: boolean
  readonly contentSum: boolean
  readonly size: bigint | undefined
  readonly blockBytes: number
  readonly end: number
}

function readHeader(frame: Buffer): FrameHeader {
  if (frame.length < 7 || frame.readUInt32LE(0) !== magic) throw malformed("it does not begin with the magic number")
  const flags = frame[4] as number
  const code = (frame[5] as number) >> 4
  if ((flags & 0xc0) !== flag.version || (flags & flag.reserved) !== 0) throw malformed(`flags ${flags} are not known`)
  if ((flags & flag.dictionary) !== 0) throw malformed("it wants a dictionary, which Kafka has none of")
  if (code < 4 || code > 7) throw malformed(`block size ${code} is not known`)
  const sized = (flags & flag.size) !== 0
  const end = sized ? 15 : 7
  if (frame.length < end) throw malformed("it ends within its header")
  if (headerSum(frame.subarray(4, end - 1)) !== frame[end - 1])
    throw malformed("the checksum of its header does not match")
  return {
    independent: (flags & flag.independent) !== 0,
    blockSums: (flags & flag.blockSums) !== 0,
    contentSum: (flags & flag.contentSum) !== 0,
    size: sized ? frame.readBigUInt64LE(6) : undefined,
    blockBytes: 1 << (8 + 2 * code),
    end,
  }
}

/** What was decompressed so far. */
class Output {
  readonly #limitBytes: number
  #bytes: Buffer = Buffer.allocUnsafeSlow(firstOutputBytes)
  #position = 0

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  get content(): Buffer {
    return this.#bytes.subarray(0, this.#position)
  }

  add(block: Uint8Array): void {
    if (block.length > this.#limitBytes - this.#position) throw tooLong("lz4", this.#limitBytes)
    this.#grow(this.#position + block.length)
    this.#bytes.set(block, this.#position)
    this.#position += block.length
  }

  expand(block: Uint8Array, limits: { readonly mostBytes: number; readonly history: number }): void {
    // A byte of a block makes at most 255. What one block has more than the limit is seen when it is there.
    const most = Math.min(limits.mostBytes, block.length * 255)
    const start = this.#position
    this.#grow(start + most)
    const history = Math.min(limits.history, start)
    this.#position = readLz4Block(block, this.#bytes, { start, end: start + most, history })
    if (this.#position > this.#limitBytes) throw tooLong("lz4", this.#limitBytes)
  }

  #grow(needed: number): void {
    if (needed <= this.#bytes.length) return
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(this.#bytes.length * 2, this.#limitBytes)))
    larger.set(this.content)
    this.#bytes = larger
  }
}

function wordAt(frame: Buffer, position: number): number {
  if (position + 4 > frame.length) throw malformed("it ends too early")
  return frame.readUInt32LE(position)
}

function headerSum(bytes: Uint8Array): number {
  return (xxh32(bytes) >>> 8) & 0xff
}

function malformed(detail: string): DecodeError {
  return new DecodeError(`lz4: a frame is malformed: ${detail}`)
}
