/**
 * 128-bit message ids. A record's id is given before its first attempt and kept by every resend. Unless the caller gives one it is
 * the id of its batch plus its index: the low 20 bits of a batch id are zero, so one summary a batch tells all of its ids.
 */
import { InvalidError } from "./error.ts"

/** An unsigned 128-bit number, 1 to 2^128 − 1. As text: a UUID. */
export type MessageId = bigint

/** A batch holds fewer records than this, so that ids of one batch never reach into the next. */
export const maxBatchRecords: number = 1 << 20

const indexMask = BigInt(maxBatchRecords - 1)
const largest = (1n << 128n) - 1n

/**
 * The UUIDv7 (RFC 9562, section 5.7) of a batch.
 * @param millis Unix time in milliseconds, 48 bits.
 * @param randomA 12 random bits.
 * @param randomB 42 random bits: the top of the 62 of the standard; the rest counts records.
 */
export function batchId(millis: number, randomA: number, randomB: bigint): MessageId {
  const high = (BigInt(millis) << 16n) | 0x7000n | BigInt(randomA & 0xfff)
  const low = (2n << 62n) | (BigInt.asUintN(42, randomB) << 20n)
  return (high << 64n) | low
}

/** The batch that an id would derive from, and its index there. Only a backend's summary tells whether there was such a batch. */
export function splitId(id: MessageId): { readonly batch: MessageId; readonly index: number } {
  return { batch: id & ~indexMask, index: Number(id & indexMask) }
}

/** @throws InvalidError for anything but a UUID in its 36-character form. */
export function parseMessageId(text: string): MessageId {
  if (!/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(text)) {
    throw new InvalidError(`message id ${JSON.stringify(text)} is not a UUID (8-4-4-4-12 hexadecimal digits)`)
  }
  return checkMessageId(BigInt(`0x${text.replaceAll("-", "")}`))
}

/** @throws InvalidError outside 1 to 2^128 − 1. */
export function checkMessageId(id: MessageId): MessageId {
  if (typeof id !== "bigint" || id <= 0n || id > largest) {
    throw new InvalidError(`message id ${String(id)} is not a bigint from 1 to 2^128 − 1`)
  }
  return id
}

/** The id as a UUID. */
export function formatMessageId(id: MessageId): string {
  const digits = id.toString(16).padStart(32, "0")
  return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-${digits.slice(12, 16)}-${digits.slice(16, 20)}-${digits.slice(20)}`
}
