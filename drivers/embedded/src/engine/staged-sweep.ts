/** Removing the batches of aborted transactions, in the steps of `sweep.ts`. */
import { removeBatches, type SweepBudget } from "./sweep-step.ts"
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
    const low = key * batchesPerTransaction
    const range = { low, high: low + batchesPerTransaction - 1n, budget: { rows, inlineBytes } }
    const removed = removeBatches(transaction, "staged_batch", range)
    rows -= removed.rows
    inlineBytes -= removed.inlineBytes
    if (!removed.all) return true
    transaction.statement("DELETE FROM staged_garbage WHERE key = ?").run(key)
  }
  return true
}
