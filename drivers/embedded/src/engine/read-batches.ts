/** Reading a run of batches of one partition: their rows, then their bytes, in as few reads and buffers as possible. */
import { CorruptionError, type MillraceError } from "@millrace/contract"
import { missingSegment, type StoredRow, storedColumns, verifyBatch } from "./batch-store.ts"
import { batchRowId, missingBatch, type PartitionState, readBatchRow } from "./partition-state.ts"
import { storageError } from "./storage-error.ts"
import type { Transaction } from "./transaction.ts"

/** Batches that lie one behind the other in a segment are read together up to this size. */
const mostBytesPerRead = 1 << 20

/** Batches inside SQLite below this size share a buffer with their neighbours. */
const packedBelowBytes = 32 << 10

/** Rows that one poll takes from a partition at most. */
const mostRowsPerPoll = 4096

/** One batch as it goes to the main thread: where its bytes are, and what the row says. */
export interface ReadBatch {
  /** Index of the buffer in the poll's list. */
  readonly buffer: number
  readonly start: number
  readonly bytes: number
  readonly base: bigint
  readonly timestampMicros: bigint
  /** Where only some records of the batch are there: their indexes in the whole. */
  readonly picked?: Uint32Array
}

/** What a poll may still take from one partition. */
export interface Budget {
  bytes: number
  records: number
  /** Bytes that the whole poll has left: the partition's first batch may use them, so that a small share does not starve it. */
  readonly pollBytes: number
  /** Whether the next batch may exceed all of this: the first one of a poll. */
  first: boolean
}

/** What a read of one partition gave. An error comes beside the batches before it. */
export interface BatchRun {
  readonly batches: ReadBatch[]
  /** Where reading goes on. */
  readonly nextOffset: bigint
  readonly nextBatch: bigint
  /** Why it stopped early. */
  readonly error: MillraceError | undefined
}

/** Reads from batch `number` on, which holds or begins at `offset`, as far as the budget goes. Buffers are added to the transaction. */
export function readRun(
  transaction: Transaction,
  state: PartitionState,
  from: { readonly number: bigint; readonly offset: bigint; readonly budget: Budget },
): BatchRun {
  const { rows, error } = chooseRows(transaction, state, from)
  const batches: ReadBatch[] = []
  try {
    for (let i = 0; i < rows.length; ) {
      const end = (rows[i] as StoredRow).body === null ? segmentRun(rows, i) : packedRun(rows, i)
      readParts(transaction, rows.slice(i, end), batches)
      i = end
    }
  } catch (failure) {
    const known = storageError(failure, "reading the log")
    return goOn(
      rows,
      batches,
      from,
      withNext(transaction, { state, damaged: from.number + BigInt(batches.length) }, known),
    )
  }
  return goOn(rows, batches, from, error)
}

/** A damaged batch ends where the next one begins: what its own row says of that may be the damage. The offset goes with the error. */
function withNext(
  transaction: Transaction,
  { state, damaged }: { readonly state: PartitionState; readonly damaged: bigint },
  error: MillraceError,
): MillraceError {
  if (!(error instanceof CorruptionError)) return error
  try {
    const last = damaged + 1n === state.nextBatch
    const nextOffset = last ? state.next : readBatchRow(transaction, state, damaged + 1n).base
    return new CorruptionError(error.message, { context: { ...error.context, nextOffset }, cause: error.cause })
  } catch {
    // The next one is damaged, too: it will be told when its turn comes.
    return error
  }
}

function goOn(
  rows: readonly StoredRow[],
  batches: ReadBatch[],
  from: { readonly number: bigint; readonly offset: bigint },
  error: MillraceError | undefined,
): BatchRun {
  const last = batches.length === 0 ? undefined : rows[batches.length - 1]
  const nextOffset = last === undefined ? from.offset : last.base + last.count
  return { batches, nextOffset, nextBatch: from.number + BigInt(batches.length), error }
}

function chooseRows(
  transaction: Transaction,
  state: PartitionState,
  { number, offset, budget }: { readonly number: bigint; readonly offset: bigint; readonly budget: Budget },
): { readonly rows: StoredRow[]; readonly error: MillraceError | undefined } {
  const rows: StoredRow[] = []
  const low = batchRowId(state.key, number)
  const found = transaction
    .statement(`SELECT ${storedColumns} FROM batch WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?`)
    .iterate(low, batchRowId(state.key, state.nextBatch) - 1n, mostRowsPerPoll)
  let expected = offset
  let id = low
  try {
    for (const raw of found) {
      const row = raw as unknown as StoredRow
      const bytes = Number(row.length)
      const room = rows.length === 0 ? budget.pollBytes : budget.bytes
      if (!budget.first && (room < bytes || budget.records <= 0)) return { rows, error: undefined }
      if (row.id !== id) return { rows, error: missingBatch(state, number + BigInt(rows.length)) }
      const fits = rows.length === 0 ? row.base <= expected && row.base + row.count > expected : row.base === expected
      if (!fits) return { rows, error: gap(row, expected) }
      budget.bytes -= bytes
      budget.records -= Number(rows.length === 0 ? row.base + row.count - offset : row.count)
      budget.first = false
      rows.push(row)
      expected = row.base + row.count
      id += 1n
    }
  } catch (failure) {
    return { rows, error: storageError(failure, "reading the log") }
  }
  return {
    rows,
    error: rows.length < mostRowsPerPoll ? endOf(state, number + BigInt(rows.length), expected) : undefined,
  }
}

/** The rows have ended: rightly so when that is where the partition ends. */
function endOf(state: PartitionState, number: bigint, expected: bigint): CorruptionError | undefined {
  if (number < state.nextBatch) return missingBatch(state, number)
  if (expected === state.next) return undefined
  return new CorruptionError(`the log ends at offset ${expected}, and its counter says ${state.next}`, {
    context: { offset: expected, end: state.next },
  })
}

/** The end of the run of rows from `start` whose bytes lie one behind the other in one segment. */
function segmentRun(rows: readonly StoredRow[], start: number): number {
  const first = rows[start] as StoredRow
  let bytes = first.length
  let end = start + 1
  for (; end < rows.length; end++) {
    const row = rows[end] as StoredRow
    if (row.segment !== first.segment || row.position !== (first.position as bigint) + bytes) break
    if (bytes + row.length > mostBytesPerRead) break
    bytes += row.length
  }
  return end
}

/** The end of the run of small rows from `start` that lie inside SQLite. */
function packedRun(rows: readonly StoredRow[], start: number): number {
  let bytes = 0
  let end = start
  for (; end < rows.length; end++) {
    const { body } = rows[end] as StoredRow
    if (body === null || (end > start && body.length >= packedBelowBytes)) break
    bytes += body.length
    if (end > start && bytes > mostBytesPerRead) break
    if (body.length >= packedBelowBytes) return end + 1
  }
  return end
}

/** Damage in one batch must not hide those before it, so what cannot be read together is read one by one. */
function readParts(transaction: Transaction, rows: readonly StoredRow[], batches: ReadBatch[]): void {
  const before = batches.length
  try {
    readTogether(transaction, rows, batches)
  } catch (error) {
    if (rows.length === 1) throw error
    for (const row of rows.slice(batches.length - before)) readTogether(transaction, [row], batches)
  }
}

function readTogether(transaction: Transaction, rows: readonly StoredRow[], batches: ReadBatch[]): void {
  const [first] = rows
  if (first === undefined) return
  const only = rows.length === 1 ? first.body : null
  const bytes = only ?? bytesOf(transaction, rows, first)
  const buffer = transaction.transfer.push(bytes.buffer as ArrayBuffer) - 1
  let start = 0
  for (const row of rows) {
    const length = Number(row.length)
    verifyBatch(row, bytes.subarray(start, start + length))
    batches.push({
      buffer,
      start: bytes.byteOffset + start,
      bytes: length,
      base: row.base,
      timestampMicros: row.time,
    })
    start += length
  }
}

function bytesOf(transaction: Transaction, rows: readonly StoredRow[], first: StoredRow): Uint8Array {
  let length = 0
  for (const row of rows) length += row.body === null ? Number(row.length) : row.body.length
  const bytes = Buffer.allocUnsafeSlow(length)
  if (first.body === null) {
    const place = { segment: first.segment as bigint, position: Number(first.position) }
    if (!transaction.segments.read(place, bytes, transaction.monotonicMs)) throw missingSegment(first)
    return bytes
  }
  let start = 0
  for (const { body } of rows) {
    if (body === null) continue
    bytes.set(body, start)
    start += body.length
  }
  return bytes
}

function gap(row: StoredRow, expected: bigint): CorruptionError {
  return new CorruptionError(
    `the log has a gap: offset ${expected} is next, and the batch there holds ${row.base} to ${row.base + row.count - 1n}`,
    { context: row.base > expected ? { offset: expected, nextOffset: row.base } : { offset: expected } },
  )
}
