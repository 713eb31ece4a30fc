/** Rows of times that are held against a limit. */
import { systemClock } from "@millrace/runtime"
import { median, spread } from "../quantile.ts"
import { type Row, target } from "../row.ts"

/** One backend's rounds of one benchmark. */
export interface Rounds {
  readonly backend: string
  readonly ms: readonly number[]
  /** The most that it may be. */
  readonly limitMs: number
}

/** The row of the slowest backend, by its share of its limit; the others are peers. */
export function durationRow(
  rounds: readonly Rounds[],
  text: { readonly id: string; readonly unit: string; readonly method: string },
): Row {
  const all = rounds.map((each) => ({ ...each, median: median(each.ms), spread: spread(each.ms) }))
  const worst = all.toSorted((a, b) => b.median / b.limitMs - a.median / a.limitMs)[0] as (typeof all)[number]
  const { limitMs } = worst
  const peers: Record<string, number> = {}
  for (const each of all) {
    peers[`ms, ${each.backend}`] = each.median
    peers[`ms at most, ${each.backend}`] = each.spread.max
  }
  return {
    id: text.id,
    unit: text.unit,
    better: "lower",
    ours: worst.median,
    reference: limitMs,
    referenceName: `the limit, ${worst.backend}`,
    ratio: worst.median / limitMs,
    peers,
    cpuMicrosPerRecord: null,
    spread: {
      ours: worst.spread,
      reference: { min: limitMs, max: limitMs },
      ratio: { min: worst.spread.min / limitMs, max: worst.spread.max / limitMs },
    },
    targets: all.map((each) => target(`ms, ${each.backend}`, each.median, "at most", each.limitMs)),
    method: text.method,
  }
}

/** How long `work` takes, in ms. */
export async function duration(work: () => Promise<void>): Promise<number> {
  const start = systemClock.monotonicMs()
  await work()
  return systemClock.monotonicMs() - start
}
