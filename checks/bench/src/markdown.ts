/** The tables of `docs/benchmarks.md`. */
import { formatFigure } from "./report.ts"
import type { Row, Target } from "./row.ts"

/** Two tables: the rows with what they are held against, and behind an empty line every other figure. Widths are left to the formatter. */
export function formatTables(rows: readonly Row[]): string {
  const figures = rows.map((row) => [
    row.id,
    `${formatFigure(row.ours)} ${row.unit} (${range(row.spread.ours)})`,
    `${formatFigure(row.reference)}, ${row.referenceName}`,
    `${formatFigure(row.ratio)} (${range(row.spread.ratio)})`,
    row.targets.map(goal).join("; "),
    row.cpuMicrosPerRecord === null ? "" : formatFigure(row.cpuMicrosPerRecord),
  ])
  const others = rows.flatMap((row) =>
    Object.entries(row.peers).map(([name, value]) => [row.id, name, formatFigure(value)]),
  )
  return [
    table(["id", "ours", "reference", "ratio (spread)", "goal", "CPU µs a record"], figures),
    table(["id", "figure", "value"], others),
    rows.map((row) => `- **${row.id}**: ${row.method}.`).join("\n"),
  ].join("\n\n")
}

function goal({ figure, value, rule, limit, met }: Target): string {
  return `${figure} ${rule} ${formatFigure(limit)}: ${formatFigure(value)}${met ? "" : ", missed"}`
}

function range({ min, max }: { readonly min: number; readonly max: number }): string {
  return `${formatFigure(min)} to ${formatFigure(max)}`
}

function table(head: readonly string[], lines: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...lines].map((cells) => `| ${cells.map(escaped).join(" | ")} |`).join("\n")
}

/** A bar would begin the next cell. */
function escaped(cell: string): string {
  return cell.replaceAll("|", "\\|")
}
