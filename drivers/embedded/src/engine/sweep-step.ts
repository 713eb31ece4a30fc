/** One step of removing batches, those of the log and those that were staged. */
import type { Transaction } from "./transaction.ts"

/** How much one step removes at most. Bytes count for batches inside SQLite, whose pages must all be looked at to be freed. */
export interface SweepBudget {
  readonly rows: number
  readonly inlineBytes: number
}

/** Removes batches of a range, the first ones first, and what they hold of segments. `all`: none of the range is left. */
export function removeBatches(
  transaction: Transaction,
  table: "batch" | "staged_batch",
  { low, high, budget }: { readonly low: bigint; readonly high: bigint; readonly budget: SweepBudget },
): SweepBudget & { readonly all: boolean } {
  const found = transaction
    .statement(`SELECT id, segment, length FROM ${table} WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?`)
    .all(low, high, budget.rows)
  const freed = new Map<bigint, number>()
  let rows = 0
  let inlineBytes = 0
  for (const row of found) {
    if (inlineBytes >= budget.inlineBytes) break
    const segment = row.segment as bigint | null
    if (segment === null) inlineBytes += Number(row.length)
    else freed.set(segment, (freed.get(segment) ?? 0) + Number(row.length))
    rows++
  }
  const last = found[rows - 1]?.id
  if (last !== undefined) transaction.statement(`DELETE FROM ${table} WHERE id BETWEEN ? AND ?`).run(low, last)
  for (const [segment, bytes] of freed) transaction.segments.drop(transaction, segment, bytes)
  return { rows, inlineBytes, all: rows === found.length && rows < budget.rows }
}
