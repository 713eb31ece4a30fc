/**
 * Decides how many messages a queue consumer takes ahead. Pure.
 *
 * What lies in the buffer must be handled within a quarter of its wait, at the pace that was seen: so a slow handler takes nothing ahead,
 * and replicas get what it would only keep. It begins with nothing and at most doubles from one look to the next. A slower pace counts at
 * once, a faster one bit by bit.
 *
 *     state      seen                                    then
 *     unknown    nothing handled yet                     ahead 0
 *     paced      a message took p ms on average          ahead min(most, wait / 4 / p, twice as many as before)
 */
export class PrefetchMachine {
  readonly #most: number
  readonly #budgetMs: number
  #paceMs: number | undefined
  #ahead = 0

  /**
   * @param most What was allowed.
   * @param waitMs The shortest wait of a message; infinite where there is none.
   */
  constructor(most: number, waitMs: number) {
    this.#most = most
    this.#budgetMs = waitMs / budgetParts
  }

  /** How many messages may be in the buffer. */
  get ahead(): number {
    return this.#ahead
  }

  /** `count` messages, at least 1, took so long together, side by side or one after the other. */
  handled(count: number, tookMs: number): void {
    if (this.#most === 0) return
    const paceMs = Math.max(tookMs / count, fastestMs)
    const known = this.#paceMs
    if (known === undefined || paceMs >= known) this.#paceMs = paceMs
    else this.#paceMs = Math.max(paceMs, known + (paceMs - known) * Math.min(1, count * patience))
    const fitting = Math.floor(this.#budgetMs / this.#paceMs)
    this.#ahead = Math.min(this.#most, fitting, Math.max(firstAhead, this.#ahead * 2))
  }
}

/** What lies in the buffer gets one part of so many of its wait. */
const budgetParts = 4
/** Clocks do not tell less. */
const fastestMs = 0.0005
/** What one message that was faster counts. */
const patience = 0.1
const firstAhead = 4
