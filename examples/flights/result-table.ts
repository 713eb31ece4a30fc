import type { DelayTable } from "./delays.ts"

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
  const widths = columns.map((column, index) => Math.max(column.length, ...rows.map((row) => row[index]?.length ?? 0)))
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, index) => (index === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[index] ?? 0)))
      .join("  ")
  return [line(columns), widths.map((size) => "-".repeat(size)).join("  "), ...rows.map(line)]
}
