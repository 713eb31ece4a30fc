/**
 * What Confluent's serializers write before a payload ("Wire format", Schema Registry documentation):
 *
 *     byte 0      0, the magic byte
 *     bytes 1–4   the schema id, big-endian
 *     Protobuf    the place of the message: how many numbers, then each of them, as zigzag varints; a single 0 for the first message
 *     the rest    the payload
 */
import { DecodeError } from "@millrace/contract"

/** How deep messages may lie within each other. */
const deepestMessage = 100
const idEnd = 5

/** A payload behind its frame. */
export interface Framed {
  readonly messageIndex: readonly number[]
  /** Where the payload begins. */
  readonly start: number
}

const firstMessage: readonly number[] = [0]

/** The bytes before a payload. */
export function frame(id: number, messageIndex: readonly number[] | undefined): Uint8Array {
  const bytes = [0, id >>> 24, (id >>> 16) & 0xff, (id >>> 8) & 0xff, id & 0xff]
  if (messageIndex !== undefined) {
    const single = messageIndex.length === 1 && messageIndex[0] === 0
    for (const number of single ? messageIndex : [messageIndex.length, ...messageIndex]) pushVarint(bytes, number)
  }
  return Uint8Array.from(bytes)
}

/** @throws DecodeError without a whole frame */
export function framedId(payload: Uint8Array): number {
  if (payload.length < idEnd) {
    throw new DecodeError(`the payload has ${payload.length} bytes, and a schema id before it takes ${idEnd}`)
  }
  if (payload[0] !== 0) {
    throw new DecodeError(`the payload begins with the byte ${payload[0]}, and not with 0 and a schema id`)
  }
  return new DataView(payload.buffer, payload.byteOffset, payload.byteLength).getUint32(1)
}

/** @throws DecodeError for a place that is none */
export function framedMessage(payload: Uint8Array): Framed {
  const cursor = { payload, at: idEnd }
  const count = readVarint(cursor)
  if (count === 0) return { messageIndex: firstMessage, start: cursor.at }
  if (count < 0 || count > deepestMessage) {
    throw new DecodeError(`the payload says that its message lies ${count} deep; at most ${deepestMessage} is possible`)
  }
  const messageIndex: number[] = []
  for (let step = 0; step < count; step++) messageIndex.push(readVarint(cursor))
  return { messageIndex, start: cursor.at }
}

/** Numbers here are never negative, so that zigzag is the double. */
function pushVarint(bytes: number[], number: number): void {
  let rest = number * 2
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80)
  bytes.push(rest)
}

function readVarint(cursor: { readonly payload: Uint8Array; at: number }): number {
  let value = 0
  for (let shift = 0; shift < 35; shift += 7) {
    const byte = cursor.payload[cursor.at++]
    if (byte === undefined) throw new DecodeError("the payload ends within the place of its message")
    value += (byte & 0x7f) * 2 ** shift
    if (byte < 0x80) return value % 2 === 0 ? value / 2 : -(value + 1) / 2
  }
  throw new DecodeError("the payload has a number of more than 32 bits in the place of its message")
}
