/** Lines of a table: the first column left, the others right. */
export function textTable(columns: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const widths = columns.map((column, index) => Math.max(column.length, ...rows.map((row) => row[index]?.length ?? 0)))
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, index) => (index === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[index] ?? 0)))
      .join("  ")
      .trimEnd()
  return [line(columns), widths.map((size) => "-".repeat(size)).join("  "), ...rows.map(line)]
}
