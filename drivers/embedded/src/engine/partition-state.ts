/** The counters of a partition. */
import { CorruptionError } from "@millrace/contract"
import type { Access } from "./command.ts"
import { batchesPerPartition } from "./schema.ts"

/** A partition under the key of its present history. */
export interface PartitionState {
  readonly key: number
  /** The first retained offset, and the offset that the next record gets. */
  readonly first: bigint
  readonly next: bigint
  /** The same for batches, which are numbered within the partition. */
  readonly firstBatch: bigint
  readonly nextBatch: bigint
  /** Bytes ever appended and ever removed: their difference is what is there. */
  readonly written: bigint
  readonly removed: bigint
  /** The newest append time. */
  readonly timeMicros: bigint
}

/** One stored batch without its bytes. */
export interface BatchRow {
  readonly base: bigint
  readonly count: bigint
  readonly time: bigint
  readonly total: bigint
}

const selectState =
  "SELECT first, next, first_batch, next_batch, written, removed, time FROM log_state WHERE partition = ? AND producer = 0"

/** @throws CorruptionError when the partition's row is missing */
export function readPartition(access: Access, key: number): PartitionState {
  const state = findPartition(access, key)
  if (state === undefined) throw new CorruptionError(`the state of the partition with key ${key} is missing`)
  return state
}

/** The counters of a partition; none when its topic was purged or deleted, or has lost them. */
export function findPartition(access: Access, key: number): PartitionState | undefined {
  const row = access.statement(selectState).get(key)
  if (row === undefined) return undefined
  return {
    key,
    first: row.first as bigint,
    next: row.next as bigint,
    firstBatch: row.first_batch as bigint,
    nextBatch: row.next_batch as bigint,
    written: row.written as bigint,
    removed: row.removed as bigint,
    timeMicros: row.time as bigint,
  }
}

/** The rows of an empty partition that begins at offset 0. */
export function createPartition(access: Access, key: number): void {
  access
    .statement(
      `INSERT INTO log_state (partition, producer, time, first, next, first_batch, next_batch, written, removed)
       VALUES (?, 0, 0, 0, 0, 0, 0, 0, 0)`,
    )
    .run(key)
}

/** The row id of a batch. */
export function batchRowId(key: number, number: bigint): bigint {
  return BigInt(key) * batchesPerPartition + number
}

/** @throws CorruptionError when a batch that the partition counts is missing */
export function readBatchRow(access: Access, state: PartitionState, number: bigint): BatchRow {
  const row = access
    .statement("SELECT base, count, time, total FROM batch WHERE id = ?")
    .get(batchRowId(state.key, number))
  if (row === undefined) throw missingBatch(state, number)
  return row as unknown as BatchRow
}

/** The error for a batch that the partition counts and that has no row. */
export function missingBatch(state: PartitionState, number: bigint): CorruptionError {
  return new CorruptionError(
    `batch ${number} is missing from a partition that holds batches ${state.firstBatch} to ${state.nextBatch - 1n}`,
    { context: { first: state.first, end: state.next } },
  )
}

/**
 * The number of the first batch of which `reached` is true, when it is false for all batches before some point and true behind it;
 * the number of the next batch when it is true for none. Looks at the logarithm of their number.
 */
export function firstBatchWhere(access: Access, state: PartitionState, reached: (row: BatchRow) => boolean): bigint {
  let low = state.firstBatch
  let high = state.nextBatch
  while (low < high) {
    const middle = (low + high) >> 1n
    if (reached(readBatchRow(access, state, middle))) high = middle
    else low = middle + 1n
  }
  return low
}

/** Append times never go back, whatever the clock does. */
export function notBefore(lastMicros: bigint, nowMicros: bigint): bigint {
  if (nowMicros < lastMicros) return lastMicros
  return nowMicros
}
