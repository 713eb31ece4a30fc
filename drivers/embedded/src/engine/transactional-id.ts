/** One transactional id as the store has it, and who may still speak for it. */
import { FencedError, TransactionAbortedError, TransactionStateError } from "@millrace/contract"
import type { Access } from "./command.ts"
import type { ProcessIdentity } from "./group-process.ts"

/** Which transaction a call means, and which incarnation makes it. */
export interface TransactionRef {
  readonly producerId: bigint
  /** The epoch that `init` gave. */
  readonly incarnation: number
  /** 0 where the call is about the incarnation alone. */
  readonly key: bigint
}

/** What became of the newest transaction of an id. */
export type TransactionState = "none" | "open" | "prepared" | "committed" | "aborted"

/** A row of `transactional_id`. */
export interface TransactionalRow {
  readonly producerId: bigint
  readonly name: string
  readonly epoch: number
  readonly incarnation: number
  readonly timeoutMs: number
  /** Where the newest incarnation lives. */
  readonly owner: ProcessIdentity
  readonly key: bigint
  readonly begunEpoch: number
  readonly state: TransactionState
  readonly sinceMicros: bigint
  readonly records: number
  readonly reason: string
}

const columns =
  "producer, name, epoch, incarnation, timeout_ms, pid, started, place, key, begun_epoch, state, since, records, reason"

/** The row of a transactional id, by its name; none before the first `init`. */
export function findTransactional(access: Access, name: string): TransactionalRow | undefined {
  return rowOf(access.statement(`SELECT ${columns} FROM transactional_id WHERE name = ?`).get(name))
}

/** The row for a call of an incarnation. @throws FencedError when it is not the newest one, or was forgotten */
export function requireIncarnation(access: Access, { producerId, incarnation }: TransactionRef): TransactionalRow {
  const row = rowOf(access.statement(`SELECT ${columns} FROM transactional_id WHERE producer = ?`).get(producerId))
  if (row === undefined) {
    throw new FencedError(
      `producer ${producerId} with epoch ${incarnation} is not known any more: its transactional id was not used for days`,
      { context: { producerId, epoch: incarnation } },
    )
  }
  if (row.incarnation === incarnation) return row
  throw new FencedError(
    `transactional id ${JSON.stringify(row.name)} with epoch ${incarnation} was replaced: epoch ${row.incarnation} is the present one`,
    { context: { transactionalId: row.name, producerId, epoch: incarnation, present: row.incarnation } },
  )
}

/** The row of a transaction that is open. @throws FencedError, TransactionAbortedError, TransactionStateError */
export function requireOpen(access: Access, ref: TransactionRef, what: string): TransactionalRow {
  const row = requireIncarnation(access, ref)
  if (row.key === ref.key && row.state === "open") return row
  if (row.key === ref.key && row.state === "aborted") throw aborted(row, row.reason)
  throw wrongState(row, ref, what)
}

/** The error for a transaction that the backend has aborted. */
export function aborted({ name, key }: TransactionalRow, reason: string): TransactionAbortedError {
  return new TransactionAbortedError(`the transaction of ${JSON.stringify(name)} was aborted: ${reason}`, {
    context: { transactionalId: name, transaction: key },
  })
}

/** Why a transaction that was open for too long is aborted. */
export function timeOutText({ timeoutMs }: TransactionalRow): string {
  return `it was open for longer than its timeoutMs of ${timeoutMs} ms`
}

/** The error for a call that the state of the transaction does not allow. */
export function wrongState(row: TransactionalRow, ref: TransactionRef, what: string): TransactionStateError {
  const state = row.key === ref.key ? `it is ${row.state}` : "it is over, and another one was begun"
  return new TransactionStateError(`the transaction of ${JSON.stringify(row.name)} cannot ${what}: ${state}`, {
    context: { transactionalId: row.name, state: row.key === ref.key ? row.state : "over" },
  })
}

/** What names a prepared transaction for its coordinator: `producer_id:producer_epoch` (KIP-939). Each transaction has an epoch of its own. */
export function tokenOf({ producerId, begunEpoch }: TransactionalRow): string {
  return `${producerId}:${begunEpoch}`
}

function rowOf(row: Record<string, unknown> | undefined): TransactionalRow | undefined {
  if (row === undefined) return undefined
  return {
    producerId: row.producer as bigint,
    name: row.name as string,
    epoch: Number(row.epoch),
    incarnation: Number(row.incarnation),
    timeoutMs: row.timeout_ms as number,
    owner: { pid: Number(row.pid), started: row.started as string, place: row.place as string },
    key: row.key as bigint,
    begunEpoch: Number(row.begun_epoch),
    state: row.state as TransactionState,
    sinceMicros: row.since as bigint,
    records: Number(row.records),
    reason: row.reason as string,
  }
}

/** Every transactional id in one of the states. */
export function transactionalIn(access: Access, state: "open" | "prepared"): TransactionalRow[] {
  return access
    .statement(`SELECT ${columns} FROM transactional_id WHERE state = ? ORDER BY since, producer`)
    .all(state)
    .map((row) => rowOf(row) as TransactionalRow)
}
