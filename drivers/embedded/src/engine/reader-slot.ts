/** One partition of a reader under one position. */
import { type ErrorWire, errorToWire, type Position } from "@millrace/contract"
import { topicText } from "./catalog-cache.ts"
import type { PartitionState } from "./partition-state.ts"
import type { ReadBatch } from "./read-batches.ts"
import { storageError } from "./storage-error.ts"

/** A position as the main thread numbers it: a number is used once, so that an answer to an old position is known as such. */
export interface SlotPosition extends Position {
  readonly slot: number
}

/** What a poll gave for one slot. */
export type SlotRead =
  | {
      readonly slot: number
      readonly batches: readonly ReadBatch[]
      readonly nextOffset: bigint
      readonly head: bigint
      readonly error?: undefined
    }
  | { readonly slot: number; readonly error: ErrorWire }

/** Where the reading of a partition stands. */
export interface ReaderSlot {
  readonly position: SlotPosition
  offset: bigint
  /** Where the main thread believes it to stand: behind what it was answered. */
  told: bigint
  /** The batch that holds the offset, once it was looked for under this partition key. */
  batch: { readonly key: number; readonly number: bigint } | undefined
  failed: boolean
  /** Whether the last poll did not find a segment that it expected. */
  vanished: boolean
}

/** A slot and the partition as it is now. */
export interface ReadySlot {
  readonly slot: ReaderSlot
  readonly state: PartitionState
}

export function newSlot(position: SlotPosition): ReaderSlot {
  const { offset } = position
  return { position, offset, told: offset, batch: undefined, failed: false, vanished: false }
}

/** The number of the batch that comes next. */
export function batchNumber(slot: ReaderSlot): bigint {
  return slot.batch?.number ?? 0n
}

/** Moves a slot on. */
export function moveSlot(slot: ReaderSlot, to: { readonly offset: bigint; readonly number: bigint }): void {
  slot.offset = to.offset
  slot.vanished = false
  slot.batch = { key: slot.batch?.key ?? 0, number: to.number }
}

/**
 * Notes an error at the place where the slot stands; `undefined` when it is too early to tell. A segment can vanish between the look at the
 * index and the look at the file, when retention removes it in another process. The next poll sees a newer index: then the position is out
 * of range, or the segment is really lost.
 */
export function readError(
  slot: ReaderSlot,
  error: Error & { readonly context?: Readonly<Record<string, unknown>> },
): SlotRead | undefined {
  const vanished = error.context?.vanished === true && !slot.vanished
  slot.vanished = vanished
  return vanished ? undefined : failSlot(slot, error)
}

/** Ends the reading of a slot with an error. */
export function failSlot(slot: ReaderSlot, error: unknown): SlotRead {
  slot.failed = true
  const { stream, topic, partition } = slot.position
  const known = storageError(error, `reading partition ${partition} of topic ${topicText(slot.position)}`)
  const wire = errorToWire(known)
  return {
    slot: slot.position.slot,
    error: { ...wire, context: { stream, topic, partition, offset: slot.offset, ...wire.context } },
  }
}
