/** What one benchmark answers: the row of the table, and the element of the JSON array. */
import type { Spread } from "./quantile.ts"

/** A limit that the benchmark holds a figure against. */
export interface Target {
  /** The figure in words, as the table prints it. */
  readonly figure: string
  readonly value: number
  /** `at least` for rates and shares, `at most` and `below` for times, sizes and CPU. */
  readonly rule: "at least" | "at most" | "below"
  readonly limit: number
  readonly met: boolean
}

export interface Row {
  readonly id: string
  /** The unit of `ours` and `reference`. */
  readonly unit: string
  /** Which direction is good: `lower` for times and sizes, where a ratio below 1 is better. */
  readonly better: "higher" | "lower"
  /** Medians over the rounds of the run. */
  readonly ours: number
  readonly reference: number
  readonly referenceName: string
  /** `ours / reference`, both from the same run. */
  readonly ratio: number
  /** Every other figure of the run, by a name that carries its unit. */
  readonly peers: Readonly<Record<string, number>>
  /** CPU time of the whole process, all threads, for each record of `ours`; `null` where no rate is measured. */
  readonly cpuMicrosPerRecord: number | null
  /** Least and greatest of the rounds, and of the ratio of each pair. */
  readonly spread: { readonly ours: Spread; readonly reference: Spread; readonly ratio: Spread }
  readonly targets: readonly Target[]
  /** How the figures were made: batch sizes, partitions, rounds, records. */
  readonly method: string
}

/** Holds `value` against `limit`. */
export function target(figure: string, value: number, rule: Target["rule"], limit: number): Target {
  const met = rule === "at least" ? value >= limit : rule === "at most" ? value <= limit : value < limit
  return { figure, value, rule, limit, met }
}
