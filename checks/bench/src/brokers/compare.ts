/** Rows that hold ours against the best of its peers in the same run. */
import type { BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import type { Row } from "../row.ts"

export interface Comparison {
  readonly id: string
  readonly unit: string
  readonly ours: Arm
  /** The best of these is the reference. */
  readonly peers: readonly Arm[]
  /** Measured in the same turns, and only told. */
  readonly beside?: readonly Arm[]
  readonly rounds: number
  readonly method: string
  targets(ours: Series, best: Series, all: ReadonlyMap<string, Series>): Row["targets"]
}

/** Runs all arms in turns. Where there is no peer the reference is ours itself. */
export async function compare({ scratch, quick }: BenchmarkContext, comparison: Comparison): Promise<Row> {
  const { ours, peers, beside = [] } = comparison
  const arms = [ours, ...peers, ...beside]
  const series = await interleave(arms, quick ? 1 : comparison.rounds, scratch)
  const byName = new Map(arms.map((arm, index) => [arm.name, series[index] as Series]))
  const own = series[0] as Series
  const ranked = peers
    .map((arm) => ({ name: arm.name, series: byName.get(arm.name) as Series }))
    .toSorted((one, other) => other.series.median - one.series.median)
  const best = ranked[0] ?? { name: "none: there is no peer for this server", series: own }
  const told: Record<string, number> = { ...own.figures }
  for (const [name, { median, cpuMicrosPerRecord, figures }] of byName) {
    if (name === ours.name) continue
    told[`${comparison.unit}, ${name}`] = median
    if (cpuMicrosPerRecord !== null) told[`CPU µs/record, ${name}`] = cpuMicrosPerRecord
    for (const [figure, value] of Object.entries(figures)) told[`${figure}, ${name}`] = value
  }
  return pairRow(own, best.series, {
    id: comparison.id,
    unit: comparison.unit,
    better: "higher",
    referenceName: best.name,
    peers: told,
    targets: comparison.targets(own, best.series, byName),
    method: comparison.method,
  })
}
