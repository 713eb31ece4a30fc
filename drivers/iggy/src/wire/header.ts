/**
 * The 256 bytes before every body (docs/drivers/iggy-wire.md: Frames, Wire 0.12).
 *
 * | offset | request        | reply          | eviction              |
 * | -----: | -------------- | -------------- | --------------------- |
 * |     48 | size u32       | size           | size = 256            |
 * |     60 | command u8 = 5 | command = 8    | command = 13          |
 * |    128 | client u128    |                | client                |
 * |    144 | stamp u128     |                | newest and oldest version |
 * |    168 | request u64    |                |                       |
 * |    176 | operation u8   | op u64         |                       |
 * |    184 | session u64    | commit u64     |                       |
 * |    192 |                | timestamp u64  |                       |
 * |    196 | code u32       |                |                       |
 * |    200 | partition context, 24 bytes | request u64 |             |
 * |    208 |                | operation u8   |                       |
 * |    216 |                | status u32     |                       |
 * |    255 |                |                | reason u8             |
 */
import type { PartitionContext } from "../codec/catalog-structures.ts"

export const headerBytes = 256

/** Above this a server closes the connection. The header counts. */
export const mostRequestBytes: number = 64 << 20

/** What a frame is, by its byte 60. */
export const frameKinds: { readonly request: 5; readonly reply: 8; readonly eviction: 13 } = {
  request: 5,
  reply: 8,
  eviction: 13,
}

export const sizeAt = 48
export const kindAt = 60

const at = { client: 128, stamp: 144, request: 168, operation: 176, session: 184, code: 196, context: 200 } as const
const replyAt = { op: 176, commit: 184, timestamp: 192, request: 200, operation: 208, status: 216 } as const
const evictionAt = { newest: 144, oldest: 148, reason: 255 } as const

export interface RequestHeader {
  /** Random and never 0. */
  readonly client: bigint
  /** 0 before a login. */
  readonly session: bigint
  readonly request: number
  readonly operation: number
  /** 0 unless the operation is the non-replicated one. */
  readonly code: number
  /** XXH3-64 of the body on wire 0.11 (0: not told), a random number of the request on wire 0.12. */
  readonly stamp: bigint
  /** Wire 0.12 alone. */
  readonly context: PartitionContext | undefined
}

/** Writes the header over the first 256 bytes of a frame; its size is the frame's length. */
export function writeRequestHeader(frame: Buffer, header: RequestHeader): void {
  frame.fill(0, 0, headerBytes)
  frame.writeUInt32LE(frame.length, sizeAt)
  frame[kindAt] = frameKinds.request
  writeU128(frame, header.client, at.client)
  if (header.stamp !== 0n) writeU128(frame, header.stamp, at.stamp)
  frame.writeBigUInt64LE(BigInt(header.request), at.request)
  frame[at.operation] = header.operation
  frame.writeBigUInt64LE(header.session, at.session)
  frame.writeUInt32LE(header.code, at.code)
  if (header.context !== undefined) {
    frame.writeBigUInt64LE(header.context.incarnation, at.context)
    frame.writeBigUInt64LE(header.context.ownerGeneration, at.context + 8)
    frame.writeBigUInt64LE(header.context.metadataOp, at.context + 16)
  }
}

export interface ReplyHeader {
  readonly op: bigint
  readonly commit: bigint
  /** Of the commit, in microseconds; 0 for what is not replicated. */
  readonly timestampMicros: bigint
  readonly request: number
  /** Not always the one that was sent. */
  readonly operation: number
  /** 0, or the error for which the request was refused before it was committed. */
  readonly status: number
}

/** The frame is at least a header long. */
export function readReplyHeader(frame: Buffer): ReplyHeader {
  return {
    op: frame.readBigUInt64LE(replyAt.op),
    commit: frame.readBigUInt64LE(replyAt.commit),
    timestampMicros: frame.readBigUInt64LE(replyAt.timestamp),
    request: Number(frame.readBigUInt64LE(replyAt.request)),
    operation: frame[replyAt.operation] as number,
    status: frame.readUInt32LE(replyAt.status),
  }
}

export interface EvictionHeader {
  readonly reason: number
  /** The window of protocol versions that the server takes, packed; 0 unless that is the reason. */
  readonly oldestVersion: number
  readonly newestVersion: number
}

/** The frame is at least a header long. */
export function readEvictionHeader(frame: Buffer): EvictionHeader {
  return {
    reason: frame[evictionAt.reason] as number,
    oldestVersion: frame.readUInt32LE(evictionAt.oldest),
    newestVersion: frame.readUInt32LE(evictionAt.newest),
  }
}

function writeU128(frame: Buffer, value: bigint, offset: number): void {
  frame.writeBigUInt64LE(BigInt.asUintN(64, value), offset)
  frame.writeBigUInt64LE(value >> 64n, offset + 8)
}
