/**
 * Records that prove themselves: who wrote them, which one it is, and that no byte is another's.
 *
 *     0  u32  writer
 *     4  u32  sequence, from 0, one a record of this writer
 *     8  u32  bytes in all
 *    12       filler, a function of the three
 */
import assert from "node:assert/strict"

/** The least a payload can have. */
const trialHeaderBytes = 12

/** The payload of a writer's record. `bytes` is at least `trialHeaderBytes`. */
export function trialPayload(writer: number, sequence: number, bytes: number): Uint8Array {
  const payload = new Uint8Array(bytes)
  const view = new DataView(payload.buffer)
  view.setUint32(0, writer)
  view.setUint32(4, sequence)
  view.setUint32(8, bytes)
  fill(payload, writer, sequence)
  return payload
}

/** Who wrote a record and which it is. */
export interface TrialRecord {
  readonly writer: number
  readonly sequence: number
}

/** Reads a payload back. @throws AssertionError when a byte of it is not what the writer wrote. */
export function readTrialPayload(payload: Uint8Array | null): TrialRecord {
  assert.ok(payload !== null && payload.length >= trialHeaderBytes, "a record that nobody wrote: too short")
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length)
  const writer = view.getUint32(0)
  const sequence = view.getUint32(4)
  const whole = view.getUint32(8) === payload.length
  assert.ok(
    whole && Buffer.compare(payload, trialPayload(writer, sequence, payload.length)) === 0,
    `a record that nobody wrote: writer ${writer}, ${sequence}`,
  )
  return { writer, sequence }
}

function fill(payload: Uint8Array, writer: number, sequence: number): void {
  let state = (Math.imul(writer + 1, 0x9e3779b1) ^ Math.imul(sequence + 1, 0x85ebca6b)) | 0
  const words = new Uint32Array(payload.buffer, 0, payload.length >>> 2)
  for (let word = trialHeaderBytes / 4; word < words.length; word += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0
    words[word] = state
  }
  for (let at = Math.max(trialHeaderBytes, payload.length & ~3); at < payload.length; at += 1) payload[at] = state + at
}
