/** One commit for all write commands that wait. */
import { type Durability, errorToWire, MillraceError } from "@millrace/contract"
import { topicKey } from "./catalog-cache.ts"
import type { WriteCommand } from "./command.ts"
import type { EngineReply, EngineRequest } from "./request.ts"
import type { Retention } from "./retention.ts"
import { isFatal, sqliteCode, storageError } from "./storage-error.ts"
import { sweep, sweptBesideAppends } from "./sweep.ts"
import { type EngineParts, Transaction } from "./transaction.ts"

/** A write that waits for its commit. */
export interface QueuedWrite {
  readonly request: EngineRequest
  readonly command: WriteCommand<unknown, unknown>
  readonly durability: Durability
  /** When it came, on the monotonic clock. */
  readonly sinceMs: number
  readonly bytes: number
}

/** What a commit did. */
export interface GroupOutcome {
  readonly replies: readonly EngineReply[]
  /** Buffers of the answers, to be handed over. */
  readonly transfer: readonly ArrayBuffer[]
  /** Absent when nothing was committed. */
  readonly transaction?: Transaction
}

/**
 * Runs the writes inside the write transaction that is open, and ends it. A command that throws is undone alone; a failure of the
 * store as a whole undoes and fails them all.
 */
export function runGroup(
  parts: EngineParts,
  writes: readonly QueuedWrite[],
  options: { readonly synced: boolean; readonly retention: Retention; readonly sweeping: boolean },
): GroupOutcome {
  const { store, segments, catalog } = parts
  let committing = false
  try {
    const transaction = new Transaction(parts, { synced: options.synced, incoming: incomingBytes(writes) })
    const transfer: ArrayBuffer[] = []
    const replies = writes.map((write) => {
      const reply = runOne(parts, transaction, write)
      if (transaction.transfer.length > 0) {
        transfer.push(...transaction.transfer)
        transaction.transfer = []
      }
      return reply
    })
    segments.flush(transaction)
    if (transaction.grown.size > 0) options.retention.afterAppends(transaction)
    if (options.sweeping || transaction.littered)
      transaction.littered = sweep(transaction, sweptBesideAppends(bytesOf(writes)))
    committing = true
    store.commit()
    segments.committed(parts.clock.monotonicMs())
    return { replies, transfer, transaction }
  } catch (error) {
    if (!committing) store.rollback()
    segments.abandon()
    catalog.forget()
    const failure = errorToWire(groupError(error, committing, store.directory.path))
    return { replies: writes.map(({ request }) => ({ id: request.id, error: failure })), transfer: [] }
  }
}

function runOne(parts: EngineParts, transaction: Transaction, { request, command }: QueuedWrite): EngineReply {
  const { store, catalog } = parts
  if (command.checksFirst) {
    try {
      return { id: request.id, value: command.run(transaction, request.args) }
    } catch (error) {
      if (error instanceof MillraceError) return { id: request.id, error: errorToWire(error) }
      throw error
    }
  }
  store.savepoint()
  try {
    const value = command.run(transaction, request.args)
    store.releaseSavepoint()
    return { id: request.id, value }
  } catch (error) {
    if (isFatal(error)) throw error
    store.rollbackToSavepoint()
    catalog.forget()
    transaction.transfer = []
    return { id: request.id, error: errorToWire(storageError(error, request.name)) }
  }
}

function bytesOf(writes: readonly QueuedWrite[]): number {
  return writes.reduce((sum, { bytes }) => sum + bytes, 0)
}

function incomingBytes(writes: readonly QueuedWrite[]): ReadonlyMap<string, number> {
  const incoming = new Map<string, number>()
  for (const { command, request } of writes) {
    const brought = command.incoming?.(request.args)
    if (brought === undefined) continue
    const key = topicKey(brought.topic)
    incoming.set(key, (incoming.get(key) ?? 0) + brought.bytes)
  }
  return incoming
}

/** Before the commit nothing has happened. A commit whose sync failed may still be found after a crash: nobody knows. */
function groupError(error: unknown, committing: boolean, path: string): MillraceError {
  const unsure = committing && (sqliteCode(error) ?? 0) % 256 === ioError
  return storageError(error, `the commit to the store at ${JSON.stringify(path)}`, {
    outcome: unsure ? "unknown" : "rejected",
  })
}

/** SQLITE_IOERR. */
const ioError = 10
