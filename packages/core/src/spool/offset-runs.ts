/** Offsets of one lane as runs: what a batch holds of the spool. */

/** `length` offsets from `first` on. */
export interface OffsetRun {
  readonly first: bigint
  readonly length: number
}

/** The offset behind the highest one; 0 for none. */
export function endOf(runs: readonly OffsetRun[]): bigint {
  let end = 0n
  for (const { first, length } of runs) {
    const behind = first + BigInt(length)
    if (behind > end) end = behind
  }
  return end
}

/** Runs for a batch that was cut behind its `count`-th record: in the order of the records. */
function cutRuns(runs: readonly OffsetRun[], count: number): readonly [OffsetRun[], OffsetRun[]] {
  const before: OffsetRun[] = []
  const behind: OffsetRun[] = []
  let left = count
  for (const { first, length } of runs) {
    const taken = Math.min(left, length)
    if (taken > 0) before.push({ first, length: taken })
    if (taken < length) behind.push({ first: first + BigInt(taken), length: length - taken })
    left -= taken
  }
  return [before, behind]
}

/** Adds an offset behind the last one, in the last run where it continues that. */
export function appendOffsets(runs: { first: bigint; length: number }[], first: bigint, length: number): void {
  const last = runs.at(-1)
  if (last !== undefined && last.first + BigInt(last.length) === first) last.length += length
  else runs.push({ first, length })
}

/** Of records in the order of their runs: the runs of `count` of them from the `index`-th on. */
export function sliceRuns(runs: readonly OffsetRun[], index: number, count: number): readonly OffsetRun[] {
  if (runs.length === 1) return [{ first: (runs[0] as OffsetRun).first + BigInt(index), length: count }]
  const [, behind] = cutRuns(runs, index)
  return cutRuns(behind, count)[0]
}
