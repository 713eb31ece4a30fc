/** What one engine remembers of transactions: how long it has seen them open, and what became of the last ones. */
import type { StagedResult } from "@millrace/contract"
import type { ProcessTable } from "./group-process.ts"
import type { TransactionalRow, TransactionRef } from "./transactional-id.ts"

/** What the last commit of an id answered, and which incarnation asked. */
interface Answered {
  readonly key: bigint
  readonly incarnation: number
  readonly results: readonly StagedResult[]
}

/**
 * A transaction that some engine has seen open for its time-out, on that engine's own monotonic clock, is open for at least so long, so
 * every engine may say that its time is over. The owner has seen it from its beginning.
 *
 * What is remembered of a commit that was undone is never asked for: the store says first that there was one.
 */
export class TransactionalMemory {
  readonly processes: ProcessTable
  #seenMs = new Map<bigint, number>()
  readonly #inlineBytes = new Map<bigint, number>()
  readonly #results = new Map<bigint, Answered>()

  constructor(processes: ProcessTable) {
    this.processes = processes
  }

  begun(key: bigint, nowMs: number): void {
    this.#seenMs.set(key, nowMs)
    this.#inlineBytes.delete(key)
  }

  /** How long the transaction was seen open. */
  openMs(key: bigint, nowMs: number): number {
    const since = this.#seenMs.get(key)
    if (since !== undefined) return nowMs - since
    this.#seenMs.set(key, nowMs)
    return 0
  }

  /** Forgets what is not under way any more. */
  keepOnly(open: readonly TransactionalRow[]): void {
    const kept = new Map<bigint, number>()
    for (const { key } of open) {
      const since = this.#seenMs.get(key)
      if (since !== undefined) kept.set(key, since)
    }
    this.#seenMs = kept
    for (const key of this.#inlineBytes.keys()) if (!kept.has(key)) this.#inlineBytes.delete(key)
  }

  /** Bytes that a transaction has staged inside SQLite, and that its commit therefore copies. */
  inlineBytes(key: bigint): number {
    return this.#inlineBytes.get(key) ?? 0
  }

  addInlineBytes(key: bigint, bytes: number): void {
    this.#inlineBytes.set(key, this.inlineBytes(key) + bytes)
  }

  /** A transaction is over; `results`: what its commit answers, should it be asked again. */
  ended({ producerId, key, incarnation }: TransactionalRow, results: readonly StagedResult[] | undefined): void {
    this.#seenMs.delete(key)
    this.#inlineBytes.delete(key)
    if (results === undefined) this.#results.delete(producerId)
    else this.#results.set(producerId, { key, incarnation, results })
  }

  /** What the commit of a transaction answered; only its own session asks, which is the one that made it. */
  results({ producerId, key }: TransactionalRow): readonly StagedResult[] | undefined {
    const last = this.#results.get(producerId)
    return last?.key === key ? last.results : undefined
  }

  /** A session has ended: nobody asks for its results any more. */
  forget({ producerId, incarnation }: TransactionRef): void {
    if (this.#results.get(producerId)?.incarnation === incarnation) this.#results.delete(producerId)
  }
}
