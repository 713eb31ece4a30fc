/** Incarnations of transactional ids: begun, fenced by the next one, closed, and forgotten when nobody comes back. */
import type { Identity } from "@millrace/contract"
import type { WriteCommand } from "./command.ts"
import type { Transaction } from "./transaction.ts"
import { abortStaged } from "./transactional-end.ts"
import { findTransactional, requireIncarnation, type TransactionRef, tokenOf } from "./transactional-id.ts"

/**
 * An id that nobody used for so long may be forgotten (Kafka's transactional.id.expiration.ms: 7 days), by the wall clock, which may jump:
 * never one whose session lives in a process that runs.
 */
const forgottenAfterMicros = 7n * 24n * 3_600_000_000n

/** How many ids one step of forgetting removes at most. */
const forgottenPerStep = 64

/** Arguments of `transactions.init`. */
export interface InitTransactional {
  readonly transactionalId: string
  readonly timeoutMs: number
  readonly keepPrepared: boolean
}

/** The new incarnation. */
export interface Initialised {
  readonly identity: Identity
  /** The token of the transaction that was kept. */
  readonly prepared: string | undefined
}

/** Raises the epoch, and aborts what older incarnations have under way, but for what is to be kept. */
export const initTransactional: WriteCommand<InitTransactional, Initialised> = {
  mode: "write",
  name: "transactions.init",
  // It may end a prepared transaction, which must not come back after a power failure.
  durability: () => "synced",
  run(access, { transactionalId, timeoutMs, keepPrepared }) {
    const transaction = access as Transaction
    const { pid, started, place } = transaction.transactional.processes.self
    const known = findTransactional(transaction, transactionalId)
    if (known === undefined) {
      const producerId = transaction.count("nextProducer")
      transaction
        .statement("INSERT INTO transactional_id VALUES (?, ?, 0, 0, ?, ?, ?, ?, 0, 0, 'none', ?, 0, '')")
        .run(producerId, transactionalId, timeoutMs, pid, started, place, transaction.nowMicros)
      return { identity: { producerId, epoch: 0 }, prepared: undefined }
    }
    const keeps = known.state === "prepared" && keepPrepared
    if (known.state === "open" || (known.state === "prepared" && !keepPrepared))
      abortStaged(transaction, known, "a newer incarnation of its transactional id has begun")
    const epoch = known.epoch + 1
    transaction
      .statement(
        `UPDATE transactional_id SET epoch = ?, incarnation = ?, timeout_ms = ?, pid = ?, started = ?, place = ?,
           state = ?, since = ? WHERE producer = ?`,
      )
      .run(
        epoch,
        epoch,
        timeoutMs,
        pid,
        started,
        place,
        keeps ? "prepared" : "none",
        keeps ? known.sinceMicros : transaction.nowMicros,
        known.producerId,
      )
    return { identity: { producerId: known.producerId, epoch }, prepared: keeps ? tokenOf(known) : undefined }
  },
}

/** Ends an incarnation, which lives nowhere any more: what it has open is aborted, what is prepared stays. One that was replaced has nothing. */
export const closeTransactional: WriteCommand<TransactionRef, void> = {
  mode: "write",
  name: "transactions.close",
  durability: () => "written",
  run(access, ref) {
    const transaction = access as Transaction
    transaction.transactional.forget(ref)
    const row = requireIncarnation(transaction, ref)
    if (row.state === "open") abortStaged(transaction, row, "its session was closed")
    transaction.statement("UPDATE transactional_id SET place = '' WHERE producer = ?").run(row.producerId)
  },
}

/** Forgets some ids that have nothing under way and that nobody used for a week. Answers whether there may be more. */
export function forgetTransactional(transaction: Transaction): boolean {
  const remove = transaction.statement("DELETE FROM transactional_id WHERE producer = ?")
  const forgotten = forgettable(transaction, forgottenPerStep)
  for (const producer of forgotten) remove.run(producer)
  return forgotten.length === forgottenPerStep
}

/** Whether there is an id to forget. */
export function hasForgottenTransactional(transaction: Transaction): boolean {
  return forgettable(transaction, 1).length > 0
}

/** Some ids that nobody used for long, and that no session here speaks for: it was closed, its process has ended, or is elsewhere. */
function forgettable(transaction: Transaction, most: number): bigint[] {
  const { processes } = transaction.transactional
  const unused = transaction.statement(
    `SELECT pid, started, place, group_concat(producer) AS producers FROM transactional_id
     WHERE state IN ('none', 'committed', 'aborted') AND since < ? GROUP BY pid, started, place`,
  )
  const found: bigint[] = []
  for (const row of unused.all(transaction.nowMicros - forgottenAfterMicros)) {
    const owner = { pid: Number(row.pid), started: row.started as string, place: row.place as string }
    if (owner.place === processes.self.place && !processes.isGone(owner)) continue
    for (const producer of (row.producers as string).split(",")) {
      if (found.length === most) return found
      found.push(BigInt(producer))
    }
  }
  return found
}
