/** Order statistics of measured values. None of them changes its argument. */

/**
 * The nearest-rank quantile of `values`.
 * @param q 0 to 1; 0.5 is the median, 0.99 the value that 99 of 100 do not exceed.
 * @throws RangeError when there are no values, since a figure made of nothing must not enter a table.
 */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) throw new RangeError(`quantile ${q} of no values: the measurement produced none`)
  const sorted = [...values].sort((a, b) => a - b)
  const rank = Math.min(sorted.length, Math.max(1, Math.ceil(q * sorted.length)))
  return sorted[rank - 1] as number
}

/** The median; of an even number of values the mean of the middle two. */
export function median(values: readonly number[]): number {
  if (values.length === 0) throw new RangeError("median of no values: the measurement produced none")
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] as number
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] as number)) / 2
}

/** The least and the greatest of several rounds: how far a figure can be trusted. */
export interface Spread {
  readonly min: number
  readonly max: number
}

/** @throws RangeError when there are no values. */
export function spread(values: readonly number[]): Spread {
  if (values.length === 0) throw new RangeError("spread of no values: the measurement produced none")
  return { min: Math.min(...values), max: Math.max(...values) }
}
