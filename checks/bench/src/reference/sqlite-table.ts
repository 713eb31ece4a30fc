/**
 * The third reference: what a program does without a log. A plain table in WAL mode with full syncs, one row a record,
 * 1,000 inserts a transaction, in the calling thread.
 */
import { DatabaseSync } from "node:sqlite"

/** Inserts in one transaction. */
const rowsPerTransaction = 1000

export interface SqliteTable {
  /** Writes `count` rows, taking the payloads in turn. The last transaction may be smaller. */
  fill(payloads: readonly Uint8Array[], count: number): void
  close(): void
}

/** @param path the database to create. */
export function openSqliteTable(path: string): SqliteTable {
  const database = new DatabaseSync(path)
  database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
  database.exec("CREATE TABLE record (position INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
  const insert = database.prepare("INSERT INTO record (payload) VALUES (?)")
  return {
    fill(payloads, count) {
      for (let written = 0; written < count; ) {
        const end = Math.min(count, written + rowsPerTransaction)
        database.exec("BEGIN")
        for (; written < end; written++) insert.run(payloads[written % payloads.length] as Uint8Array)
        database.exec("COMMIT")
      }
    },
    close: () => database.close(),
  }
}
