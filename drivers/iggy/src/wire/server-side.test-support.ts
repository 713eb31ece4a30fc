/** Frames as a server reads and writes them: with offsets of its own from the protocol's tables, so that it shares no mistake with the client. */
import type { RequestHeader } from "./header.ts"

const headerBytes = 256

export interface ReceivedHeader extends RequestHeader {
  readonly sizeBytes: number
}

/** iggy-wire.md: Frames; the partition context of Wire 0.12. */
export function readRequestHeader(frame: Buffer): ReceivedHeader {
  return {
    sizeBytes: frame.readUInt32LE(48),
    client: u128(frame, 128),
    stamp: u128(frame, 144),
    request: Number(frame.readBigUInt64LE(168)),
    operation: frame.readUInt8(176),
    session: frame.readBigUInt64LE(184),
    code: frame.readUInt32LE(196),
    context: {
      incarnation: frame.readBigUInt64LE(200),
      ownerGeneration: frame.readBigUInt64LE(208),
      metadataOp: frame.readBigUInt64LE(216),
    },
  }
}

/** A whole reply; its body is what follows the header (iggy-wire.md: Frames, Replies). */
export function writeReplyFrame(
  header: { readonly request: number; readonly operation: number; readonly status?: number },
  body: Uint8Array,
): Buffer {
  const frame = Buffer.concat([Buffer.alloc(headerBytes), body])
  frame.writeUInt32LE(frame.length, 48)
  frame.writeUInt8(8, 60)
  frame.writeBigUInt64LE(BigInt(header.request), 200)
  frame.writeUInt8(header.operation, 208)
  frame.writeUInt32LE(header.status ?? 0, 216)
  return frame
}

/** Whether a reply of this operation has its results before the payload (iggy-wire.md: Replies). */
export function hasResults(operation: number): boolean {
  const ranges = [
    [1, 1],
    [64, 68],
    [128, 137],
    [139, 149],
    [150, 150],
    [161, 162],
  ] as const
  return ranges.some(([from, to]) => operation >= from && operation <= to)
}

/** Section 2.4. */
export function writeEvictionFrame(
  reason: number,
  window: { readonly oldest: number; readonly newest: number },
): Buffer {
  const frame = Buffer.alloc(headerBytes)
  frame.writeUInt32LE(headerBytes, 48)
  frame.writeUInt8(13, 60)
  frame.writeUInt32LE(window.newest, 144)
  frame.writeUInt32LE(window.oldest, 148)
  frame.writeUInt8(reason, 255)
  return frame
}

function u128(frame: Buffer, at: number): bigint {
  return (frame.readBigUInt64LE(at + 8) << 64n) | frame.readBigUInt64LE(at)
}
