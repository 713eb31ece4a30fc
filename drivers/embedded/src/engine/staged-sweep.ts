/** Removing the batches of aborted transactions, in the steps of `sweep.ts`. */
import type { SweepBudget } from "./sweep.ts"
import type { Transaction } from "./transaction.ts"
import { batchesPerTransaction } from "./transactional-schema.ts"

/** Whether there is something to remove. Reads only. */
export function hasStagedGarbage(transaction: Transaction): boolean {
  return transaction.statement("SELECT 1 FROM staged_garbage LIMIT 1").get() !== undefined
}

/** Removes as much as the budget allows. Answers whether there may be more. */
export function sweepStaged(transaction: Transaction, budget: SweepBudget): boolean {
  let { rows, inlineBytes } = budget
  while (rows > 0 && inlineBytes > 0) {
    const next = transaction.statement("SELECT key FROM staged_garbage ORDER BY key LIMIT 1").get()
    if (next === undefined) return false
    const key = next.key as bigint
    const removed = removeStaged(transaction, key, { rows, inlineBytes })
    rows -= removed.rows
    inlineBytes -= removed.inlineBytes
    if (!removed.all) return true
    transaction.statement("DELETE FROM staged_garbage WHERE key = ?").run(key)
  }
  return true
}

function removeStaged(
  transaction: Transaction,
  key: bigint,
  budget: SweepBudget,
): SweepBudget & { readonly all: boolean } {
  const low = key * batchesPerTransaction
  const found = transaction
    .statement("SELECT id, segment, length FROM staged_batch WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?")
    .all(low, low + batchesPerTransaction - 1n, budget.rows)
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
  const last = found[rows - 1]?.id as bigint | undefined
  if (last !== undefined) transaction.statement("DELETE FROM staged_batch WHERE id BETWEEN ? AND ?").run(low, last)
  for (const [segment, bytes] of freed) transaction.segments.drop(transaction, segment, bytes)
  return { rows, inlineBytes, all: rows === found.length && rows < budget.rows }
}
