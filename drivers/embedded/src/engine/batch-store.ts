/** Batches in the store: written by an append, read back and verified. */
import { CorruptionError } from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { batchChecksum, bodyChecksum } from "../batch/checksum.ts"
import { batchRowId, missingBatch, type PartitionState } from "./partition-state.ts"
import type { Transaction } from "./transaction.ts"

/** A row of `batch` as it is read. */
export interface StoredRow {
  readonly id: bigint
  readonly base: bigint
  readonly count: bigint
  readonly time: bigint
  readonly checksum: bigint
  readonly length: bigint
  readonly segment: bigint | null
  readonly position: bigint | null
  readonly body: Uint8Array | null
}

/** The columns of `StoredRow`. */
export const storedColumns: string = "id, base, count, time, checksum, length, segment, position, body"

/** One batch, verified. @throws CorruptionError when it is missing or damaged */
export function readBatchBody(transaction: Transaction, state: PartitionState, number: bigint): BatchBody {
  const found = transaction
    .statement(`SELECT ${storedColumns} FROM batch WHERE id = ?`)
    .get(batchRowId(state.key, number))
  if (found === undefined) throw missingBatch(state, number)
  const row = found as unknown as StoredRow
  let bytes = row.body
  if (bytes === null) {
    bytes = new Uint8Array(Number(row.length))
    const place = { segment: row.segment as bigint, position: Number(row.position) }
    if (!transaction.segments.read(place, bytes, transaction.monotonicMs)) throw missingSegment(row)
  }
  verifyBatch(row, bytes)
  return new BatchBody(bytes.buffer, bytes.byteOffset, bytes.length)
}

/** @throws CorruptionError unless the bytes are those that were appended, at this place. */
export function verifyBatch(row: StoredRow, bytes: Uint8Array): void {
  const { id, base, time } = row
  const count = Number(row.count)
  const body = { checksum: bodyChecksum(bytes), length: bytes.length }
  const sum = batchChecksum(body, { rowId: id, base, timestampMicros: time, count })
  if (sum === Number(row.checksum) && bytes.length === Number(row.length)) return
  throw new CorruptionError(
    `the batch at offsets ${base} to ${base + row.count - 1n} is damaged: its checksum is ${sum} and should be ${row.checksum}`,
    { context: { offset: base, records: count } },
  )
}

/** The error for a batch whose file is gone. `context.vanished` marks that a newer index may explain it. */
export function missingSegment(row: StoredRow): CorruptionError {
  return new CorruptionError(
    `the batch at offsets ${row.base} to ${row.base + row.count - 1n} is lost: segment ${row.segment} is missing`,
    { context: { offset: row.base, segment: row.segment, vanished: true } },
  )
}

/** A batch as an append stores it. */
export interface NewBatch {
  readonly key: number
  readonly number: bigint
  readonly base: bigint
  readonly timestampMicros: bigint
  readonly total: bigint
  readonly count: number
  readonly body: Uint8Array
  /** Of the bytes, as `bodyChecksum` has it. */
  readonly checksum: number
  readonly place: { readonly segment: bigint; readonly position: number } | undefined
}

/** Writes the row of a batch, with its checksum; bytes that have no place in a segment go into the row. */
export function insertBatch(transaction: Transaction, batch: NewBatch): void {
  const { base, timestampMicros, count, body, checksum, place } = batch
  const { unflushed } = transaction
  if (place !== undefined && !unflushed.has(batch.key)) unflushed.set(batch.key, base)
  const rowId = batchRowId(batch.key, batch.number)
  transaction
    .statement(
      `INSERT INTO batch (id, base, count, time, total, checksum, length, segment, position, body)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    )
    .run(
      rowId,
      base,
      count,
      timestampMicros,
      batch.total,
      batchChecksum({ checksum, length: body.length }, { rowId, base, timestampMicros, count }),
      body.length,
      place?.segment ?? null,
      place?.position ?? null,
      place === undefined ? body : null,
    )
}
