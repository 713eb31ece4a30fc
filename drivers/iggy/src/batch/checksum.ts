/** The hashes of the protocol: XXH3-64 over messages and batches, XXH32 of keys (iggy-wire.md: Batches, Hashes). */
import { xxh3, xxh32 } from "@node-rs/xxhash"
import { batchAt, messageAt } from "./layout.ts"
import { hashShortMessages, longestShortBytes, roomBytes, roomMessages } from "./short-hash.ts"

/** The server's hash of a routing key; the partition is this modulo the partition count. */
export function keyHash(key: Uint8Array): number {
  return xxh32(key, 0)
}

/** XXH3-64 with seed 0 of the bytes from `from` to `to`. */
function xxh3Of(bytes: Buffer, from: number, to: number): bigint {
  return xxh3.xxh64(bytes.subarray(from, to))
}

/** The messages of one batch: where each begins, and where the last one ends. */
export interface Messages {
  readonly bytes: Buffer
  readonly starts: Uint32Array
  readonly end: number
}

/** Grows with the largest batch that was seen. */
let scratch = new Uint32Array(2048)

/**
 * The checksum of each message, as two words, the low one first. They are good until the next call. The lengths within the messages must
 * have been checked.
 */
export function messageChecksums({ bytes, starts, end }: Messages): Uint32Array {
  const count = starts.length
  if (scratch.length < count * 2) scratch = new Uint32Array(2 ** Math.ceil(Math.log2(count * 2)))
  const hashes = scratch
  let next = 0
  while (next < count) {
    const from = starts[next] as number
    let to = from
    let last = next
    while (last < count && last - next < roomMessages) {
      const after = last + 1 < count ? (starts[last + 1] as number) : end
      if (after - to > longestShortBytes + messageAt.id || after - from > roomBytes) break
      to = after
      last++
    }
    if (last > next) {
      const words = hashShortMessages(bytes, from, to)
      for (let i = 0; i < (last - next) * 2; i++) hashes[next * 2 + i] = words[i] as number
      next = last
      continue
    }
    const hash = xxh3Of(bytes, from + messageAt.id, next + 1 < count ? (starts[next + 1] as number) : end)
    hashes[next * 2] = Number(hash & 0xffff_ffffn)
    hashes[next * 2 + 1] = Number(hash >> 32n)
    next++
  }
  return hashes
}

/** The bytes that a batch's checksum is of, gathered. Used within one call only. */
let gathered: Buffer = Buffer.allocUnsafeSlow(8 << 10)

const producerBytes = 15

/**
 * The checksum of the batch that begins at `at`: over its header but for the checksum itself, then over the checksums of its messages.
 * @param hashes As `messageChecksums` answers them.
 */
export function batchChecksum(bytes: Buffer, at: number, hashes: Uint32Array): bigint {
  const count = bytes.readUInt32LE(at + batchAt.count)
  const most = batchAt.checksum + 4 + producerBytes + count * 8
  if (gathered.length < most) gathered = Buffer.allocUnsafeSlow(2 ** Math.ceil(Math.log2(most)))
  const target = gathered
  let end = bytes.copy(target, 0, at, at + batchAt.checksum)
  end += bytes.copy(target, end, at + batchAt.count, at + batchAt.count + 4)
  if (bytes[at + batchAt.producerFlags] === 1) {
    target[end] = 1
    end += 1
    end += bytes.copy(target, end, at + batchAt.producerId, at + batchAt.producerId + 10)
    end += bytes.copy(target, end, at + batchAt.baseSequence, at + batchAt.baseSequence + 4)
  }
  const view = new DataView(target.buffer, target.byteOffset, target.length)
  for (let i = 0; i < count * 2; i++) {
    view.setUint32(end, hashes[i] as number, true)
    end += 4
  }
  return xxh3Of(target, 0, end)
}
