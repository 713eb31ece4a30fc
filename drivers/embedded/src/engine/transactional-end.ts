/** The two ends of a transaction. */
import type { StagedResult } from "@millrace/contract"
import { moveStaged } from "./staged-commit.ts"
import { storeStagedOffsets } from "./staged-offsets.ts"
import type { Transaction } from "./transaction.ts"
import { letGo } from "./transactional-holds.ts"
import { type TransactionalRow, timeOutText, transactionalIn } from "./transactional-id.ts"

/** Records, offsets and the end of the transaction, in the caller's commit. @throws NotFoundError for a topic that was deleted */
export function commitStaged(transaction: Transaction, row: TransactionalRow): readonly StagedResult[] {
  const results = moveStaged(transaction, row)
  storeStagedOffsets(transaction, row)
  end(transaction, row, { state: "committed", reason: "" })
  transaction.transactional.ended(row, results)
  return results
}

/** Nothing of it was ever there. Its batches are removed in small steps, beginning with this commit. */
export function abortStaged(transaction: Transaction, row: TransactionalRow, reason: string): void {
  end(transaction, row, { state: "aborted", reason })
  transaction.statement("INSERT INTO staged_garbage VALUES (?)").run(row.key)
  transaction.littered = true
  transaction.transactional.ended(row, undefined)
}

function end(
  transaction: Transaction,
  { producerId, key, state: before }: TransactionalRow,
  { state, reason }: { readonly state: "committed" | "aborted"; readonly reason: string },
): void {
  transaction
    .statement("UPDATE transactional_id SET state = ?, reason = ?, since = ? WHERE producer = ?")
    .run(state, reason, transaction.nowMicros, producerId)
  transaction.statement("DELETE FROM staged_place WHERE key = ?").run(key)
  transaction.statement("DELETE FROM staged_offset WHERE key = ?").run(key)
  if (before === "prepared") letGo(transaction, key)
}

/** Aborts transactions whose process is gone, and such that were seen open for longer than they may be. Answers whether there were any. */
export function abortAbandoned(transaction: Transaction, most: number): boolean {
  const abandoned = abandonedOf(transaction)
  for (const { row, reason } of abandoned.slice(0, most)) abortStaged(transaction, row, reason)
  return abandoned.length > 0
}

/** Whether there is a transaction to abort. Reads only; begins to count the time of those that it sees first. */
export function hasAbandoned(transaction: Transaction): boolean {
  return abandonedOf(transaction).length > 0
}

function abandonedOf(transaction: Transaction): { readonly row: TransactionalRow; readonly reason: string }[] {
  const { transactional, monotonicMs } = transaction
  const open = transactionalIn(transaction, "open")
  transactional.keepOnly(open)
  const abandoned: { readonly row: TransactionalRow; readonly reason: string }[] = []
  for (const row of open) {
    if (transactional.openMs(row.key, monotonicMs) > row.timeoutMs) abandoned.push({ row, reason: timeOutText(row) })
    else if (transactional.processes.isGone(row.owner)) abandoned.push({ row, reason: "its process has ended" })
  }
  return abandoned
}
