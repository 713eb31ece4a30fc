/** The part of the offline check that looks at transactions, and at what they have staged. */
import { bodyChecksum } from "../batch/checksum.ts"
import type { Findings } from "./check-findings.ts"
import type { TableCheck } from "./group-check.ts"
import type { SegmentFiles } from "./segment-files.ts"
import { batchesPerTransaction } from "./transactional-schema.ts"

/** Counts what is staged in segments, and reads what is prepared: only that must be whole, whatever happened to the machine. */
export function checkStaged(findings: Findings, files: SegmentFiles): void {
  const prepared = new Set(
    findings.all("SELECT key FROM transactional_id WHERE state = 'prepared'").map(({ key }) => key as bigint),
  )
  const rows = findings
    .statement("SELECT id, segment, position, length, checksum, body FROM staged_batch ORDER BY id")
    .iterate()
  for (const row of rows) {
    const segment = row.segment as bigint | null
    const length = Number(row.length)
    if (segment !== null) findings.addToSegment(segment, length)
    const key = (row.id as bigint) / batchesPerTransaction
    if (!prepared.has(key)) continue
    const where = `staged batch ${row.id} of the prepared transaction ${key}`
    findings.guarded(where, () => {
      let bytes = row.body as Uint8Array | null
      if (segment !== null) {
        const position = Number(row.position)
        findings.reaches(segment, position + length)
        bytes = new Uint8Array(length)
        if (!files.read({ segment, position }, bytes, 0)) findings.found(`${where}: segment ${segment} is missing`)
      }
      if (bytes?.length !== length || bodyChecksum(bytes) !== Number(row.checksum))
        findings.found(`${where} is damaged: its checksum does not fit its bytes`)
    })
  }
}

/** That nothing is staged for a transaction that is over, and that what is held is held by a prepared one. */
export const transactionalChecks: readonly TableCheck[] = [
  {
    sql: `SELECT id / ${batchesPerTransaction} AS key, count(*) AS n FROM staged_batch
          WHERE id / ${batchesPerTransaction} NOT IN (SELECT key FROM transactional_id WHERE state IN ('open', 'prepared'))
          AND id / ${batchesPerTransaction} NOT IN (SELECT key FROM staged_garbage) GROUP BY 1`,
    problem: ({ key, n }) => `${n} batches are staged for transaction ${key}, which is not under way`,
  },
  ...["staged_place", "staged_offset"].map((table) => ({
    sql: `SELECT DISTINCT key FROM ${table}
          WHERE key NOT IN (SELECT key FROM transactional_id WHERE state IN ('open', 'prepared'))`,
    problem: ({ key }: Readonly<Record<string, unknown>>): string =>
      `${table} has rows of transaction ${key}, which is not under way`,
  })),
  {
    sql: `SELECT id, topic, partition FROM staged_batch
          WHERE id / ${batchesPerTransaction} IN (SELECT key FROM transactional_id WHERE state IN ('open', 'prepared'))
          AND NOT EXISTS (SELECT 1 FROM staged_place WHERE staged_place.key = id / ${batchesPerTransaction}
            AND staged_place.topic = staged_batch.topic AND staged_place.partition = staged_batch.partition)`,
    problem: ({ id, topic, partition }) =>
      `staged batch ${id} is for partition ${partition} of topic ${topic}, which its transaction does not know of`,
  },
  {
    sql: `SELECT held_offset.key AS key, owner FROM held_offset
          WHERE held_offset.key NOT IN (SELECT key FROM transactional_id WHERE state = 'prepared')`,
    problem: ({ key, owner }) => `an offset of ${owner} is held by transaction ${key}, which is not prepared`,
  },
  {
    sql: `SELECT key FROM staged_garbage WHERE key IN (SELECT key FROM transactional_id WHERE state IN ('open', 'prepared'))`,
    problem: ({ key }) => `transaction ${key} is under way and to be swept`,
  },
  {
    sql: `SELECT value, (SELECT max(key) FROM transactional_id) AS most FROM store_value
          WHERE name = 'nextTransaction' AND value <= most`,
    problem: ({ value, most }) => `the counter nextTransaction is ${value}, though ${most} is in use`,
  },
  {
    sql: `SELECT value, (SELECT max(producer) FROM transactional_id) AS most FROM store_value
          WHERE name = 'nextProducer' AND value <= most`,
    problem: ({ value, most }) => `the counter nextProducer is ${value}, though ${most} is in use`,
  },
]
