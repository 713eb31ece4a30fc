import type { DelayTable } from "./delays.ts"
import { textTable } from "./text-table.ts"

const columns = ["airport", "flights", "late", "mean delay", "least", "greatest"] as const

/** The busiest airports, as lines of a table. Means are rounded for show; everything else is exact. */
export function resultTable(table: DelayTable, limit: number): string[] {
  const rows = table
    .busiest(limit)
    .map(([airport, { count, sum, least, greatest, late }]) => [
      airport,
      count.toLocaleString("en-US"),
      late.toLocaleString("en-US"),
      `${(sum / count).toFixed(1)} min`,
      `${least} min`,
      `${greatest} min`,
    ])
  return textTable(columns, rows)
}
