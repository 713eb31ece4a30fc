/**
 * Which takers that wait are told that there is something. Told all at once, hundreds would pull for one record, each in a command that
 * writes. So no more are told than there are records, and no more than a few; the next ones when those have pulled. Whoever is told and
 * does not pull keeps the others waiting for a moment only.
 *
 *     takers were told   event                                   then
 *     fewer than may be  one looks                               it is told
 *     as many as may be  one looks                               it waits on
 *     some               it, or anybody, pulls                   one less is told, and all that wait look again
 *     some               nobody more is told for so long         none is told, and all that wait look again
 */
import type { Access } from "./command.ts"

/** Takers that are told at once. */
const mostTold = 8

/** How long an offer stands, in milliseconds: a taker that was told may be closed before it pulls. */
const offerMs = 100

export class QueueOffers {
  /** The transaction that has looked last, and how many records it found. */
  #looked: Access | undefined
  #records = 0
  #told = 0
  #endsMs = 0
  #pulledMs: number | undefined

  /** When all that wait are to look again, on the monotonic clock; absent while no taker is told. */
  get lookMs(): number | undefined {
    return this.#pulledMs ?? (this.#told > 0 ? this.#endsMs : undefined)
  }

  /** Whether this taker is told. @param records How many there are. Asked once a transaction. */
  isFor(access: Access, records: () => bigint): boolean {
    if (this.#looked !== access) {
      this.#records = Number(records())
      this.#looked = access
      this.#pulledMs = undefined
      if (this.#endsMs <= access.monotonicMs) this.#told = 0
    }
    if (this.#told >= Math.min(this.#records, mostTold)) return false
    this.#told += 1
    this.#endsMs = access.monotonicMs + offerMs
    return true
  }

  /** Somebody has pulled: what is left is for the next one. */
  pulled(access: Access): void {
    if (this.#told === 0) return
    this.#told -= 1
    this.#pulledMs = access.monotonicMs
  }
}
