/** The offline check of a store: every batch, index and counter. */
import { statSync } from "node:fs"
import { DatabaseSync } from "node:sqlite"
import { StorageError } from "@millrace/contract"
import { checkPartition, checkSegments } from "./engine/check-batches.ts"
import { checkCatalog, checkStrays, livePartitions } from "./engine/check-catalog.ts"
import { Findings } from "./engine/check-findings.ts"
import { groupChecks } from "./engine/group-check.ts"
import { queueChecks } from "./engine/queue-check.ts"
import { applicationId, storeFormat } from "./engine/schema.ts"
import { SegmentFiles } from "./engine/segment-files.ts"
import { storageError } from "./engine/storage-error.ts"
import { StoreDirectory } from "./engine/store-directory.ts"
import { checkStaged, transactionalChecks } from "./engine/transactional-check.ts"

/** An older store has no tables of queues, small state and transactions. */
const fullFormat = 2n

/** What a check found. Counts are of what is there, damaged or not. */
export interface VerifyReport {
  /** Whether there is no problem at all. */
  readonly ok: boolean
  readonly streams: number
  readonly topics: number
  readonly partitions: number
  readonly batches: number
  readonly records: number
  /** Encoded bytes of the batches. */
  readonly bytes: number
  /** What is wrong, one sentence each, at most 1,000. */
  readonly problems: readonly string[]
  /** How many problems there are, also those that are not listed. */
  readonly problemCount: number
}

/**
 * Checks a store without changing it: SQLite's own integrity check; that every partition's batches follow each other without a gap
 * and add up to its counters; the checksum and the layout of every batch, wherever its bytes lie; that segments are as long as the
 * index says and count what lives in them; that rows of producers, ids,
 * offsets, groups, queues and transactions belong to what exists, and that what is prepared is whole. Reads all data, in time
 * proportional to it. Other processes should not write meanwhile; what they have committed before is checked.
 *
 * @throws StorageError when there is no store, PermissionError; damage is in the report
 */
export function verifyStore(directory: string): VerifyReport {
  const place = StoreDirectory.existing(directory)
  if (statSync(place.database, { throwIfNoEntry: false }) === undefined)
    throw new StorageError(`there is no store in ${JSON.stringify(directory)}: it has no millrace.db`)
  const files = new SegmentFiles(place, "read")
  const db = new DatabaseSync(place.database, { readOnly: true, enableForeignKeyConstraints: false })
  const findings = new Findings(db)
  try {
    check(findings, files, db)
  } catch (error) {
    findings.found(storageError(error, "the check").message)
  } finally {
    files.close()
    db.close()
  }
  const { streams, topics, partitions, batches, records, bytes, problems, problemCount } = findings
  const ok = problemCount === 0
  return { ok, streams, topics, partitions, batches, records, bytes, problems, problemCount }
}

function check(findings: Findings, files: SegmentFiles, db: DatabaseSync): void {
  db.exec("BEGIN")
  const application = findings.one("PRAGMA application_id")?.application_id
  const format = findings.one("PRAGMA user_version")?.user_version
  if (application !== BigInt(applicationId))
    throw new StorageError(`the database is not a store (application id ${application})`)
  if (typeof format !== "bigint" || format < 1n || format > BigInt(storeFormat))
    throw new StorageError(`the store has format ${format}, not one of 1 to ${storeFormat}`)
  for (const row of findings.all("PRAGMA integrity_check(100)"))
    if (row.integrity_check !== "ok") findings.found(`SQLite: ${row.integrity_check}`)
  checkCatalog(findings)
  const partitions = livePartitions(findings)
  for (const partition of partitions) findings.guarded(partition.name, () => checkPartition(findings, files, partition))
  const older = format < fullFormat
  for (const { sql, problem } of older ? groupChecks : [...groupChecks, ...queueChecks, ...transactionalChecks])
    findings.guarded("groups, offsets, queues, state and transactions", () => {
      for (const row of findings.all(sql)) findings.found(problem(row))
    })
  checkStrays(findings, new Set(partitions.map(({ key }) => key)))
  if (!older) findings.guarded("transactions", () => checkStaged(findings, files))
  checkSegments(findings, files)
}
