import { MillraceError } from "@millrace/contract"
import { forgetProducers, hasForgottenProducers } from "./producers.ts"
import { isOverdue, keepLimits, limitedTopics } from "./retention.ts"
import { isFileError, sqliteCode } from "./storage-error.ts"
import { hasGarbage, sweep, sweptWhenIdle } from "./sweep.ts"
import { type EngineParts, Transaction } from "./transaction.ts"
import { abortAbandoned, hasAbandoned } from "./transactional-end.ts"
import { forgetTransactional, hasForgottenTransactional } from "./transactional-init.ts"

/** Files of segments that were not used for so long are closed. */
const fileIdleMs = 1000

/** Dead segments of which one step removes the files. */
const deadSegmentsPerStep = 16

/** Transactions that one step aborts. */
const abortedPerStep = 64

/** The time between two looks, as a multiple of what a look costs: with many topics looks become rare, not dear. */
const pausePerCost = 100
const shortestPauseMs = 500

/** After a step that failed. */
const pauseAfterFailureMs = 10_000

/** Producers are forgotten after a day, so a look now and then is enough. */
const producerPauseMs = 600_000

/** What an idle engine does: keeps the limits of topics that nobody writes to, sweeps, forgets. Each step is one short transaction. */
export class Housekeeping {
  readonly #parts: EngineParts
  #nextLookMs = 0
  #nextProducersMs = 0

  constructor(parts: EngineParts) {
    this.#parts = parts
  }

  /** One step. `lock` begins the write transaction when nobody else writes. Answers whether there is more to do at once. */
  step(lock: () => boolean): boolean {
    const { segments, clock } = this.#parts
    const startMs = clock.monotonicMs()
    segments.closeIdle(startMs, fileIdleMs)
    if (startMs < this.#nextLookMs) return false
    try {
      const more = this.#look(startMs) && lock() && this.#tidy()
      const costMs = clock.monotonicMs() - startMs
      this.#nextLookMs = more ? 0 : startMs + Math.max(shortestPauseMs, costMs * pausePerCost)
      return more
    } catch (error) {
      // A full disk, a lock, or damage: whoever needs that part of the store is told so. Tidying is tried again later.
      if (sqliteCode(error) === undefined && !(error instanceof MillraceError) && !isFileError(error)) throw error
      this.#nextLookMs = startMs + pauseAfterFailureMs
      return false
    }
  }

  #look(nowMs: number): boolean {
    const producers = nowMs >= this.#nextProducersMs
    if (producers) this.#nextProducersMs = nowMs + producerPauseMs
    return this.#parts.store.read(() => {
      const transaction = new Transaction(this.#parts)
      return (
        hasGarbage(transaction) ||
        limitedTopics(transaction).some((topic) => isOverdue(transaction, topic)) ||
        hasAbandoned(transaction) ||
        (producers && (hasForgottenProducers(transaction) || hasForgottenTransactional(transaction)))
      )
    })
  }

  #tidy(): boolean {
    const { store, segments, clock } = this.#parts
    try {
      const transaction = new Transaction(this.#parts, { synced: true })
      const more = tidy(transaction)
      const hasForgotten = forget(transaction)
      store.commit()
      segments.committed(clock.monotonicMs())
      // There may be more than one step forgets.
      if (hasForgotten) this.#nextProducersMs = 0
      return more || hasForgotten
    } catch (error) {
      store.rollback()
      segments.abandon()
      throw error
    }
  }
}

function tidy(transaction: Transaction): boolean {
  let more = false
  for (const topic of limitedTopics(transaction)) {
    if (!isOverdue(transaction, topic)) continue
    keepLimits(transaction, topic)
    more = true
  }
  if (sweep(transaction, sweptWhenIdle)) more = true
  if (transaction.segments.removeDead(transaction, deadSegmentsPerStep)) more = true
  if (abortAbandoned(transaction, abortedPerStep)) more = true
  return more
}

function forget(transaction: Transaction): boolean {
  const producers = forgetProducers(transaction)
  return forgetTransactional(transaction) || producers
}
