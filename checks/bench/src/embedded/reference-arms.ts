/** The arms of references that several rows are compared with. */
import { join } from "node:path"
import type { Arm } from "../pairs.ts"
import { quantile } from "../quantile.ts"
import { bareWrites } from "../reference/bare-write.ts"
import { openSqliteTable } from "../reference/sqlite-table.ts"
import { perSecond, timed } from "../stopwatch.ts"

/** The p50 in ms of writing and syncing `record`, `writes` times a round, in the calling thread. */
export function bareWrite(record: Uint8Array, writes: number): Arm {
  return {
    name: "write + fdatasync",
    async measure(directory, share) {
      const times = bareWrites(join(directory, "bare"), record, Math.ceil(writes * share))
      return { value: quantile(times, 0.5), figures: { "ms, p99 of write + fdatasync": quantile(times, 0.99) } }
    },
  }
}

/** Records a second into a plain SQLite table: all of `records`, `batches` times a round. */
export function sqliteTable(records: readonly Uint8Array[], batches: number): Arm {
  return {
    name: "plain SQLite table",
    async measure(directory, share) {
      const count = Math.ceil(batches * share) * records.length
      const table = openSqliteTable(join(directory, "table.db"))
      try {
        const { ms } = await timed(() => table.fill(records, count))
        return { value: perSecond(count, ms) }
      } finally {
        table.close()
      }
    },
  }
}
