import type { MillraceError, OffsetEntry, OffsetOwner } from "@millrace/contract"
import type { SimBatch } from "./sim-batch.ts"

/** Offsets that a transaction holds for its commit. */
export interface EnlistedOffsets {
  readonly owner: OffsetOwner
  readonly entries: readonly OffsetEntry[]
}

/** One transaction, as a backend keeps it. */
export interface SimTransaction {
  readonly transactionalId: string
  /** Of the backend, from 1. */
  readonly number: number
  readonly epoch: number
  readonly beganMs: number
  readonly staged: readonly SimBatch[]
  /** By owner and partition: the last entry each. */
  readonly offsets: readonly EnlistedOffsets[]
  readonly state: "open" | "prepared" | "committed" | "aborted"
}

/** Is told of what becomes of transactions in the backend, so that what was promised can be compared with it. */
export interface TransactionWatch {
  /** @param keepPrepared Whether what was prepared is kept. */
  began(transaction: SimTransaction): void
  prepared(transaction: SimTransaction, token: string): void
  /** Just before what it holds appears. */
  committing(transaction: SimTransaction): void
  /** @param why In words. */
  aborted(transaction: SimTransaction, why: string): void
  /** An operation was refused. */
  refused(transactionalId: string, error: MillraceError): void
}

/** Looks at nothing. */
export const unwatchedTransactions: TransactionWatch = {
  began: () => {},
  prepared: () => {},
  committing: () => {},
  aborted: () => {},
  refused: () => {},
}
