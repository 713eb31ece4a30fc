/**
 * The checksum of a stored batch: CRC-32 (the polynomial of zlib, ISO 3309) of its bytes and of its place, so that a batch that was
 * moved, swapped or given another offset or time is found like one whose bytes changed.
 */
import { crc32 } from "node:zlib"

const place = Buffer.alloc(32)

/** What the log says of a batch, as far as the checksum covers it. */
export interface ChecksumPlace {
  /** The row's id: partition key and number of the batch within the partition. */
  readonly rowId: bigint
  readonly base: bigint
  readonly timestampMicros: bigint
  readonly count: number
}

/** The part of the checksum that depends on the bytes alone, which the writer of a batch takes when it is sealed. */
export function bodyChecksum(body: Uint8Array): number {
  return crc32(body)
}

/** @returns 0 to 2^32 − 1, from the checksum of the bytes and their length. */
export function batchChecksum(body: { readonly checksum: number; readonly length: number }, at: ChecksumPlace): number {
  place.writeBigInt64LE(at.rowId, 0)
  place.writeBigInt64LE(at.base, 8)
  place.writeBigInt64LE(at.timestampMicros, 16)
  place.writeUInt32LE(at.count, 24)
  place.writeUInt32LE(body.length, 28)
  return crc32(place, body.checksum)
}
