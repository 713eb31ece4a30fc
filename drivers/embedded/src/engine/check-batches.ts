/** The part of the offline check that looks at every batch, wherever its bytes lie, and at what partitions remember. */
import { CorruptionError } from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { type StoredRow, storedColumns, verifyBatch } from "./batch-store.ts"
import type { PartitionKey } from "./check-catalog.ts"
import type { Findings } from "./check-findings.ts"
import { decodeRecent, rememberedBatches } from "./producer-state.ts"
import { batchesPerPartition } from "./schema.ts"
import type { SegmentFiles } from "./segment-files.ts"

/** The batches of a partition follow each other without a gap, are whole, and add up to its counters. */
export function checkPartition(findings: Findings, files: SegmentFiles, { key, name }: PartitionKey): void {
  const state = findings.one(`SELECT * FROM log_state WHERE partition = ${key} AND producer = 0`)
  if (state === undefined) {
    findings.found(`${name} has no counters`)
    return
  }
  const low = BigInt(key) * batchesPerPartition
  let number = state.first_batch as bigint
  let offset = state.first as bigint
  let total = state.removed as bigint
  let time = 0n
  const rows = findings
    .statement(`SELECT ${storedColumns}, total FROM batch WHERE id BETWEEN ? AND ? ORDER BY id`)
    .iterate(low + number, low + batchesPerPartition - 1n)
  for (const raw of rows) {
    const row = raw as unknown as StoredRow & { readonly total: bigint }
    const where = `${name}, batch at offset ${row.base}`
    if (row.id !== low + number) findings.found(`${name}: batch ${number} is missing before offset ${row.base}`)
    if (row.base !== offset) findings.found(`${where}: offset ${offset} should come next`)
    if (row.time < time) findings.found(`${where}: its append time goes back from ${time} to ${row.time}`)
    total += row.length
    if (row.total !== total)
      findings.found(`${where}: the bytes up to it are ${total}, and the index says ${row.total}`)
    findings.guarded(where, () => checkBatch(findings, files, row))
    number = row.id - low + 1n
    offset = row.base + row.count
    total = row.total
    time = row.time
  }
  if (number !== state.next_batch)
    findings.found(`${name} ends with batch ${number - 1n}, and its counter says ${(state.next_batch as bigint) - 1n}`)
  if (offset !== state.next) findings.found(`${name} ends at offset ${offset}, and its counter says ${state.next}`)
  if (total !== state.written)
    findings.found(`${name} has ${total} bytes written, and its counter says ${state.written}`)
  if (time > (state.time as bigint)) findings.found(`${name}: its newest record is newer than its counter says`)
  checkProducers(findings, key, name)
  checkIds(findings, { key, name }, state.first_batch as bigint)
}

function checkBatch(findings: Findings, files: SegmentFiles, row: StoredRow): void {
  findings.batches++
  findings.records += Number(row.count)
  findings.bytes += Number(row.length)
  let bytes = row.body
  if (row.segment !== null) {
    findings.addToSegment(row.segment, Number(row.length))
    findings.reaches(row.segment, Number(row.position) + Number(row.length))
    bytes = new Uint8Array(Number(row.length))
    if (!files.read({ segment: row.segment, position: Number(row.position) }, bytes, 0))
      throw new CorruptionError(`the batch at offset ${row.base} is lost: segment ${row.segment} is missing`)
  }
  if (bytes === null) throw new CorruptionError(`the batch at offset ${row.base} has no bytes`)
  verifyBatch(row, bytes)
  const body = new BatchBody(bytes.buffer, bytes.byteOffset, bytes.length)
  if (BigInt(body.count) !== row.count)
    findings.found(`the batch at offset ${row.base} holds ${body.count} records, not ${row.count}`)
  for (let index = 0; index < body.count; index++) {
    body.payload(index)
    body.key(index)
    body.headers(index)
  }
}

function checkProducers(findings: Findings, key: number, name: string): void {
  for (const row of findings.all(`SELECT * FROM log_state WHERE partition = ${key} AND producer > 0`)) {
    const recent = decodeRecent(row.recent as Uint8Array)
    const last = recent.at(-1)
    const fits = last === undefined || (last.sequence + last.count) % 2 ** 31 === Number(row.sequence)
    if (recent.length > rememberedBatches || !fits)
      findings.found(`${name}: what is known of producer ${row.producer} contradicts itself`)
  }
}

function checkIds(findings: Findings, { key, name }: PartitionKey, firstBatch: bigint): void {
  for (const row of findings.all(
    `SELECT batch_summary.base, batch_summary.count, batch.base AS stored, batch.count AS held FROM batch_summary
     LEFT JOIN batch ON batch.id = ${BigInt(key) * batchesPerPartition} + number WHERE partition = ${key}
     AND number >= ${firstBatch}`,
  ))
    if (row.base !== row.stored || row.count !== row.held)
      findings.found(`${name}: the ids of the batch at offset ${row.base} do not fit what is stored`)
}

/**
 * Segments are as long as their batches say, and count what lives in them. After all batches were seen. What was only staged may be
 * missing at the end of a file after a power failure.
 */
export function checkSegments(findings: Findings, files: SegmentFiles): void {
  for (const row of findings.all("SELECT id, live, state FROM segment")) {
    if (row.state === "dead" || row.state === "gone") continue
    const size = files.size(row.id as bigint)
    const end = findings.segmentEnds.get(row.id as bigint) ?? 0
    if (size === undefined && end > 0) findings.found(`segment ${row.id} is missing`)
    else if (size !== undefined && size < end)
      findings.found(`segment ${row.id} has ${size} bytes, and its batches end at ${end}`)
  }
  const swept = findings.all(
    `SELECT segment, sum(length) AS bytes FROM batch
     WHERE segment IS NOT NULL AND EXISTS (SELECT 1 FROM garbage WHERE batch.id BETWEEN low AND high) GROUP BY segment`,
  )
  for (const row of swept) {
    const segment = row.segment as bigint
    findings.addToSegment(segment, Number(row.bytes))
  }
  for (const row of findings.all("SELECT id, live FROM segment")) {
    const live = findings.segmentBytes.get(row.id as bigint) ?? 0
    if (live !== Number(row.live))
      findings.found(`segment ${row.id} holds ${live} bytes of batches, and its counter says ${row.live}`)
    findings.segmentBytes.delete(row.id as bigint)
  }
  for (const segment of findings.segmentBytes.keys())
    findings.found(`batches lie in segment ${segment}, which is not known`)
}
