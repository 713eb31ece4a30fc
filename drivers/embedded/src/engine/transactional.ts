/** The course of a transaction: begun, perhaps prepared, ended; and the list of those that wait for their end. */
import type { PreparedTransaction, StagedResult } from "@millrace/contract"
import { type Durability, type ErrorWire, errorToWire, NotFoundError, TransactionStateError } from "@millrace/contract"
import type { ReadCommand, Room, WriteCommand } from "./command.ts"
import { refuseOverdue, stage } from "./staged-append.ts"
import { stagedTopics, syncStaged } from "./staged-commit.ts"
import { checkStagedOffsets, enlistOffsets } from "./staged-offsets.ts"
import type { Transaction } from "./transaction.ts"
import { abortStaged, commitStaged } from "./transactional-end.ts"
import { forgetHolds, hold, holdsSchema } from "./transactional-holds.ts"
import {
  aborted,
  requireIncarnation,
  requireOpen,
  type TransactionalRow,
  type TransactionRef,
  tokenOf,
  transactionalIn,
  wrongState,
} from "./transactional-id.ts"
import { closeTransactional, initTransactional } from "./transactional-init.ts"
import { batchesPerTransaction, transactionalSchema } from "./transactional-schema.ts"

/** The answer of `transactions.begin`. */
export interface Begun {
  readonly key: bigint
  /** Of the identity of this transaction. */
  readonly epoch: number
}

/** Arguments of `transactions.commit` and `transactions.abort`. */
export interface EndTransaction {
  readonly transaction: TransactionRef
  /** The strictest that its topics and offsets ask for. */
  readonly durability: Durability
}

/** Arguments of `transactions.complete`. */
export interface CompleteTransaction {
  readonly transaction: TransactionRef
  readonly token: string
  /** Whether the same was asked before with an outcome that is unknown: then what has ended is answered like the first time. */
  readonly again: boolean
}

/** What became of a transaction that was to be ended. `lost`: why a prepared one could only be aborted, though its commit was asked for. */
export interface Ended {
  readonly end: "committed" | "aborted"
  readonly results?: readonly StagedResult[]
  readonly lost?: ErrorWire
}

/**
 * A new transaction, with an epoch of its own. `key` is of the last one that the session knows of and that has not ended for it, or 0: one
 * that is open beside was begun by a call whose answer got lost, so nobody knows of it.
 */
const begin: WriteCommand<TransactionRef, Begun> = {
  mode: "write",
  name: "transactions.begin",
  durability: () => "written",
  run(access, ref) {
    const transaction = access as Transaction
    const row = requireIncarnation(transaction, ref)
    if (row.key === ref.key && row.state === "aborted") throw aborted(row, row.reason)
    if (row.key === ref.key && row.key !== 0n) throw lastNotEnded(row)
    if (row.state === "prepared") {
      throw new TransactionStateError(
        `the transactional id ${JSON.stringify(row.name)} cannot begin a transaction: the prepared one ${tokenOf(row)} must be completed first`,
        { context: { transactionalId: row.name, token: tokenOf(row) } },
      )
    }
    if (row.state === "open") abortStaged(transaction, row, "another one was begun in its place")
    const key = transaction.count("nextTransaction")
    const epoch = row.epoch + 1
    transaction
      .statement(
        "UPDATE transactional_id SET state = 'open', key = ?, epoch = ?, begun_epoch = ?, since = ?, records = 0 WHERE producer = ?",
      )
      .run(key, epoch, epoch, transaction.nowMicros, row.producerId)
    transaction.transactional.begun(key, transaction.monotonicMs)
    return { key, epoch }
  },
}

function lastNotEnded({ name, state }: TransactionalRow): TransactionStateError {
  return new TransactionStateError(
    `the transactional id ${JSON.stringify(name)} cannot begin a transaction: the last one (${state}) must be committed or aborted first`,
    { context: { transactionalId: name, state } },
  )
}

/** All that the transaction holds is on the disk when this is answered. @throws as a commit */
const prepare: WriteCommand<TransactionRef, string> = {
  mode: "write",
  name: "transactions.prepare",
  durability: () => "synced",
  run(access, ref) {
    const transaction = access as Transaction
    const known = requireIncarnation(transaction, ref)
    if (known.state === "prepared" && known.key === ref.key) return tokenOf(known)
    const row = requireOpen(transaction, ref, "be prepared")
    refuseOverdue(transaction, row)
    stagedTopics(transaction, row)
    checkStagedOffsets(transaction, row)
    hold(transaction, row)
    syncStaged(transaction, row)
    const low = row.key * batchesPerTransaction
    const records = transaction
      .statement("SELECT coalesce(sum(count), 0) AS n FROM staged_batch WHERE id BETWEEN ? AND ?")
      .get(low, low + batchesPerTransaction - 1n)?.n as bigint
    transaction
      .statement("UPDATE transactional_id SET state = 'prepared', since = ?, records = ? WHERE producer = ?")
      .run(transaction.nowMicros, records, row.producerId)
    return tokenOf(row)
  },
}

/** @throws TransactionAbortedError, NotAssignedError, HistoryChangedError, NotFoundError: then nothing was committed, and it must be aborted */
const commit: WriteCommand<EndTransaction, Ended> = {
  mode: "write",
  name: "transactions.commit",
  durability: ({ durability }) => durability,
  run(access, { transaction: ref }) {
    const transaction = access as Transaction
    const known = requireIncarnation(transaction, ref)
    if (known.key === ref.key && known.state === "committed") {
      const results = transaction.transactional.results(known)
      if (results !== undefined) return { end: "committed", results }
    }
    if (known.key === ref.key && known.state === "prepared") return commitPrepared(transaction, known)
    const row = requireOpen(transaction, ref, "be committed")
    refuseOverdue(transaction, row)
    checkStagedOffsets(transaction, row)
    return { end: "committed", results: commitStaged(transaction, row) }
  },
}

const abort: WriteCommand<EndTransaction, void> = {
  mode: "write",
  name: "transactions.abort",
  durability: ({ durability }) => durability,
  run(access, { transaction: ref }) {
    const row = requireIncarnation(access, ref)
    if (row.key !== ref.key || row.state === "committed") throw wrongState(row, ref, "be aborted")
    if (row.state === "open" || row.state === "prepared")
      abortStaged(access as Transaction, row, "its owner asked for it")
  },
}

/** Commits what was prepared under the token; aborts what was prepared under another one. */
const complete: WriteCommand<CompleteTransaction, Ended> = {
  mode: "write",
  name: "transactions.complete",
  durability: () => "synced",
  run(access, { transaction: ref, token, again }) {
    const transaction = access as Transaction
    const row = requireIncarnation(transaction, ref)
    if (again && (row.state === "committed" || row.state === "aborted")) return { end: row.state }
    if (row.state !== "prepared") {
      throw new TransactionStateError(
        `the transactional id ${JSON.stringify(row.name)} has no prepared transaction to complete with ${JSON.stringify(token)}`,
        { context: { transactionalId: row.name, token } },
      )
    }
    if (token !== tokenOf(row)) {
      abortStaged(
        transaction,
        row,
        `it was completed with the token ${JSON.stringify(token)}, and its own is ${tokenOf(row)}`,
      )
      return { end: "aborted" }
    }
    return commitPrepared(transaction, row)
  },
}

/** A prepared transaction ends either way: where a topic was deleted that it has records for, all of it is aborted. */
function commitPrepared(transaction: Transaction, row: TransactionalRow): Ended {
  try {
    stagedTopics(transaction, row)
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error
    abortStaged(transaction, row, error.message)
    return { end: "aborted", lost: errorToWire(aborted(row, error.message)) }
  }
  return { end: "committed", results: commitStaged(transaction, row) }
}

/** Prepared transactions, the oldest first, whoever prepared them. */
const list: ReadCommand<undefined, PreparedTransaction[]> = {
  mode: "read",
  name: "transactions.list",
  run: (access) =>
    transactionalIn(access, "prepared").map((row) => ({
      transactionalId: row.name,
      token: tokenOf(row),
      ageMs: Math.max(0, Number(access.nowMicros - row.sinceMicros) / 1000),
      records: row.records,
    })),
}

/** The transactions' part of the engine. */
export const transactionRoom: Room = {
  format: 2,
  schema: transactionalSchema + holdsSchema,
  commands: [
    initTransactional,
    closeTransactional,
    begin,
    stage,
    enlistOffsets,
    prepare,
    commit,
    abort,
    complete,
    list,
  ],
  topicPurged: forgetHolds,
  topicDeleted: forgetHolds,
}
