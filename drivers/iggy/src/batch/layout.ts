/**
 * The bytes of a batch (iggy-wire.md: Batches). A request that sends one is a frame header, the target, a batch header and the messages; a reply
 * to a poll holds batch headers and messages alone.
 *
 * | batch header | offset | | message          | offset |
 * | ------------ | -----: | | ---------------- | -----: |
 * | partition u64        |  0 | | checksum u64         |  0 |
 * | base offset u64      |  8 | | id u128              |  8 |
 * | append time u64      | 16 | | offset delta u32     | 24 |
 * | origin time u64      | 24 | | origin time delta u32 | 28 |
 * | batch length u64     | 32 | | headers length u32   | 32 |
 * | batch checksum u64   | 40 | | payload length u32   | 36 |
 * | message count u32    | 48 | | reserved u64         | 40 |
 * | producer, wire 0.12  | 52 | | payload, then headers | 48 |
 */

export const batchHeaderBytes = 256
export const messageHeaderBytes = 48

export const batchAt = {
  partition: 0,
  baseOffset: 8,
  appendTime: 16,
  originTime: 24,
  length: 32,
  checksum: 40,
  count: 48,
  producerFlags: 52,
  producerId: 56,
  producerEpoch: 64,
  baseSequence: 68,
} as const

export const messageAt = {
  checksum: 0,
  id: 8,
  offsetDelta: 24,
  timeDelta: 28,
  headersLength: 32,
  payloadLength: 36,
  reserved: 40,
  payload: 48,
} as const

/** The largest difference between the times of senders in one batch, in microseconds. */
export const mostTimeDelta = 0xffff_ffff

/** What Apache Iggy's own clients hold themselves and their messages to (iggy-wire.md: Limits). */
export const messageLimits = {
  payloadBytes: 64_000_000,
  headersBytes: 100_000,
  headerNameBytes: 255,
  headerValueBytes: 255,
  keyBytes: 255,
} as const
