/** Removing what nothing refers to any more, in steps so small that nobody waits for them, also after a crash. */
import { batchesPerPartition } from "./schema.ts"
import { hasStagedGarbage, sweepStaged } from "./staged-sweep.ts"
import { removeBatches, type SweepBudget } from "./sweep-step.ts"
import type { Transaction } from "./transaction.ts"

/** Beside an append of so many bytes: more than it adds, so that garbage goes faster than it comes. */
export function sweptBesideAppends(appendedBytes: number): SweepBudget {
  return { rows: 128, inlineBytes: (1 << 20) + 2 * appendedBytes }
}

/** In one step of an idle engine. */
export const sweptWhenIdle: SweepBudget = { rows: 512, inlineBytes: 8 << 20 }

/** All rows of a partition that is gone. */
export function throwPartitionAway(transaction: Transaction, key: number): void {
  const low = BigInt(key) * batchesPerPartition
  const high = low + batchesPerPartition - 1n
  // Ranges that its retention left are part of the whole.
  transaction.statement("DELETE FROM garbage WHERE low BETWEEN ? AND ?").run(low, high)
  transaction.statement("INSERT INTO garbage (low, high, partition) VALUES (?, ?, ?)").run(low, high, key)
  // Its counters go at once: who still knows the key finds nothing under it.
  transaction.statement("DELETE FROM log_state WHERE partition = ? AND producer = 0").run(key)
  transaction.littered = true
}

/** Whether there is something to sweep. Reads only. */
export function hasGarbage(transaction: Transaction): boolean {
  const found =
    transaction.statement("SELECT 1 FROM garbage LIMIT 1").get() ??
    transaction.statement("SELECT 1 FROM segment WHERE state IN ('dead', 'gone') LIMIT 1").get()
  return found !== undefined || hasStagedGarbage(transaction)
}

/** Removes as much as the budget allows of each kind of garbage. Answers whether there may be more. */
export function sweep(transaction: Transaction, budget: SweepBudget): boolean {
  const staged = sweepStaged(transaction, budget)
  return sweepLog(transaction, budget) || staged
}

function sweepLog(transaction: Transaction, budget: SweepBudget): boolean {
  let { rows, inlineBytes } = budget
  while (rows > 0 && inlineBytes > 0) {
    const next = transaction.statement("SELECT low, high, partition FROM garbage ORDER BY low LIMIT 1").get()
    if (next === undefined) return false
    const low = next.low as bigint
    const removed = removeBatches(transaction, "batch", {
      low,
      high: next.high as bigint,
      budget: { rows, inlineBytes },
    })
    rows -= removed.rows
    inlineBytes -= removed.inlineBytes
    if (!removed.all) return true
    if (next.partition !== null && rows > 0) {
      const others = removePartition(transaction, next.partition as bigint, rows)
      if (others === rows) return true
      rows -= others
    }
    if (rows > 0) transaction.statement("DELETE FROM garbage WHERE low = ?").run(low)
  }
  return true
}

/** Rows of a partition in the tables beside `batch`. Answers the most that one table lost. */
function removePartition(transaction: Transaction, key: bigint, rows: number): number {
  const summaries = transaction
    .statement(
      "DELETE FROM batch_summary WHERE partition = ? AND id IN (SELECT id FROM batch_summary WHERE partition = ? LIMIT ?)",
    )
    .run(key, key, rows)
  const ids = transaction
    .statement(
      `DELETE FROM record_id WHERE partition = ? AND (period, id) IN
       (SELECT period, id FROM record_id WHERE partition = ? LIMIT ?)`,
    )
    .run(key, key, rows)
  const states = transaction
    .statement(
      `DELETE FROM log_state WHERE partition = ? AND producer IN
       (SELECT producer FROM log_state WHERE partition = ? LIMIT ?)`,
    )
    .run(key, key, rows)
  return Math.max(Number(summaries.changes), Number(ids.changes), Number(states.changes))
}
