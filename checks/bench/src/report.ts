/** The table that people read. */
import type { Row, Target } from "./row.ts"

/** All rows as text, one block a row: the figures, the targets, the peers, how it was made. */
export function formatReport(rows: readonly Row[]): string {
  const head = ["id", "ours", "reference", "ratio", "spread of ours", "spread of ratio", "CPU µs/record"]
  const lines = rows.map((row) => [
    row.id,
    `${formatFigure(row.ours)} ${row.unit}`,
    `${formatFigure(row.reference)} ${row.unit} (${row.referenceName})`,
    `${formatFigure(row.ratio)}${row.better === "lower" ? " (below 1 is better)" : ""}`,
    `${formatFigure(row.spread.ours.min)} to ${formatFigure(row.spread.ours.max)}`,
    `${formatFigure(row.spread.ratio.min)} to ${formatFigure(row.spread.ratio.max)}`,
    row.cpuMicrosPerRecord === null ? "" : formatFigure(row.cpuMicrosPerRecord),
  ])
  const widths = head.map((title, column) => Math.max(title.length, ...lines.map((line) => line[column]?.length ?? 0)))
  const drawn = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd()
  const blocks = rows.map((row, index) => [drawn(lines[index] ?? []), ...details(row)].join("\n"))
  return [drawn(head), ...blocks].join("\n")
}

/** Three significant digits, thousands apart: 1,234,567 · 12.3 · 0.0123. */
export function formatFigure(value: number): string {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US")
  return Number(value.toPrecision(3)).toString()
}

function details(row: Row): string[] {
  const targets = row.targets.map((each) => `    ${each.met ? "met   " : "MISSED"} ${formatTarget(each)}`)
  const peers = Object.entries(row.peers).map(([name, value]) => `    peer   ${name}: ${formatFigure(value)}`)
  return [...targets, ...peers, `    how    ${row.method}`]
}

function formatTarget(each: Target): string {
  return `${each.figure}: ${formatFigure(each.value)} (${each.rule} ${formatFigure(each.limit)})`
}
