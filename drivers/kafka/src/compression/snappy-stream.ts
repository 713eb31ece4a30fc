/**
 * Snappy as Kafka's Java client writes it (xerial/snappy-java, `SnappyOutputStream`): a header of 16 bytes, then blocks behind their
 * 32-bit big-endian lengths. Clients on librdkafka write one bare block instead; both are read.
 */
import { DecodeError } from "@millrace/contract"
import { longestSnappyBlock, readSnappyBlock, snappyBound, snappyLength, writeSnappyBlock } from "./snappy-block.ts"
import { tooLong } from "./too-long.ts"

const magic = Uint8Array.of(0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0)
const version = 1
const headerBytes = 16

/** Bytes as a stream of blocks. */
export function xerialSnappy(bytes: Uint8Array): Buffer {
  const blocks = Math.max(1, Math.ceil(bytes.length / longestSnappyBlock))
  const output = Buffer.allocUnsafe(
    headerBytes + blocks * (4 + snappyBound(Math.min(bytes.length, longestSnappyBlock))),
  )
  output.set(magic)
  output.writeInt32BE(version, 8)
  output.writeInt32BE(version, 12)
  let write = headerBytes
  for (let read = 0; read < bytes.length; read += longestSnappyBlock) {
    const end = writeSnappyBlock(bytes.subarray(read, read + longestSnappyBlock), output, write + 4)
    output.writeInt32BE(end - write - 4, write)
    write = end
  }
  return output.subarray(0, write)
}

/** The bytes again, from either form. @throws DecodeError when they are malformed or more than the limit */
export function readSnappy(bytes: Uint8Array, limitBytes: number): Buffer {
  const blocks = isXerial(bytes) ? blocksOf(bytes) : [bytes]
  let whole = 0
  for (const block of blocks) whole += snappyLength(block).length
  if (whole > limitBytes) throw tooLong("snappy", limitBytes)
  const output = Buffer.allocUnsafeSlow(whole)
  let write = 0
  for (const block of blocks) {
    readSnappyBlock(block, output, write)
    write += snappyLength(block).length
  }
  return output
}

function isXerial(bytes: Uint8Array): boolean {
  return bytes.length >= headerBytes && magic.every((byte, i) => byte === bytes[i])
}

function blocksOf(bytes: Uint8Array): Uint8Array[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const blocks: Uint8Array[] = []
  let read = headerBytes
  while (read < bytes.length) {
    const length = read + 4 > bytes.length ? -1 : view.getInt32(read)
    read += 4
    if (length <= 0 || length > bytes.length - read) {
      throw new DecodeError(`snappy: a block of ${length} bytes does not fit into ${bytes.length - read}`)
    }
    blocks.push(bytes.subarray(read, read + length))
    read += length
  }
  return blocks
}
