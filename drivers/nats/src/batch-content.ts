import type { BatchStamp, MessageId, WireRecord } from "@millrace/contract"
import { formatMessageId, Headers } from "@millrace/contract"
import { messageIdName, preamble, RecordParts } from "./header-block.ts"

/** `Nats-Msg-Id: `, 36 characters of a UUID, and the line's end. */
export const idLineBytes: number = messageIdName.length + 2 + 36 + 2

/** Digits at the end of a UUID that count the records of a batch: 20 bits. */
const countedDigits = 5

/**
 * The records of a batch as they will be sent: for each its header block without the first line, and its payload. What depends on the
 * way of sending (first line, lines of an atomic batch) is written in front when the batch is appended.
 */
export interface BatchContent {
  readonly bytes: Buffer
  /** Where record i begins; one more than there are records, the last being the end. */
  readonly starts: readonly number[]
  /** Bytes of record i's header block without the first line and with the empty last one; 0 when it has no headers. */
  readonly headBytes: readonly number[]
  /** Ids that the caller gave, by index; the others derive from the stamp's. */
  readonly givenIds: ReadonlyMap<number, MessageId>
  /** Whether every record carries an id. Otherwise only those with a given one. */
  readonly allIds: boolean
  readonly stamp: BatchStamp
}

/** The id of record i, by which it is known in `records()`; the record carries it only where the content says so. */
export function idOf(content: BatchContent, index: number): MessageId {
  return content.givenIds.get(index) ?? content.stamp.id + BigInt(index)
}

/** Writes the ids that derive from the batch's into the lines that were left for them. */
export function stampIds(content: BatchContent): void {
  if (!content.allIds) return
  const { bytes, starts, givenIds, stamp } = content
  const skip = messageIdName.length + 2
  const count = starts.length - 1
  const prefix = formatMessageId(stamp.id).slice(0, 36 - countedDigits)
  const low = Number(stamp.id & 0xfffffn)
  for (let index = 0; index < count; index++) {
    if (givenIds.size > 0 && givenIds.has(index)) continue
    const at = (starts[index] as number) + skip
    const counted = low + index
    if (counted > 0xfffff) {
      bytes.write(formatMessageId(stamp.id + BigInt(index)), at, "latin1")
      continue
    }
    bytes.write(prefix, at, "latin1")
    const digits = at + 36 - countedDigits
    bytes[digits] = hexDigits.charCodeAt(counted >>> 16)
    bytes[digits + 1] = hexDigits.charCodeAt((counted >>> 12) & 15)
    bytes[digits + 2] = hexDigits.charCodeAt((counted >>> 8) & 15)
    bytes[digits + 3] = hexDigits.charCodeAt((counted >>> 4) & 15)
    bytes[digits + 4] = hexDigits.charCodeAt(counted & 15)
  }
}

/** Record i again, as a copy that outlives the batch, with its id and time. */
export function recordAt(content: BatchContent, index: number): WireRecord {
  const { bytes, starts, headBytes, stamp } = content
  const start = starts[index] as number
  const head = headBytes[index] as number
  const block = head === 0 ? undefined : Buffer.concat([preambleBytes, bytes.subarray(start, start + head)])
  const parts = new RecordParts(block)
  const payload = parts.nullPayload ? null : new Uint8Array(bytes.subarray(start + head, starts[index + 1]))
  return {
    payload,
    key: parts.key,
    headers: Headers.from(parts.headers()),
    id: idOf(content, index),
    timestampMicros: parts.originTimestampMicros ?? stamp.timestampMicros,
  }
}

const hexDigits = "0123456789abcdef"
const preambleBytes = Buffer.from(preamble, "latin1")
