/**
 * Finds what is in a caller's hands for too long (`handlerTimeoutMs`). It is shown, from time to time, what is being worked on; a piece
 * of work that looks the same for the whole time-out is overdue. Pure, and never asked anything by the work itself: a message that is
 * handled in time costs nothing.
 *
 * Only watched time counts, and of a long gap between two looks (the process was stopped, the loop blocked) no more than two intervals:
 * a handler could not run either.
 */

/** A piece of work as it is at a look. */
export interface WorkSight {
  /** Who works: a partition, or the consumer as a whole. */
  readonly key: object
  /** What it works on: another value means that the work moved on. */
  readonly mark: bigint | number
}

/** A piece of work that takes too long. */
export interface OverdueWork {
  readonly key: object
  /** Watched time, in ms. */
  readonly forMs: number
}

interface Watched {
  readonly mark: bigint | number
  readonly watchedMs: number
}

/** Looks within one time-out: what is overdue is found at most a tenth of it late. */
const looksPerTimeout = 10
const shortestIntervalMs = 5

export class HandlingWatchMachine {
  readonly #timeoutMs: number
  /** Between two looks, in ms. */
  readonly intervalMs: number
  #work = new Map<object, Watched>()
  #sinceMs: number | undefined

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs
    this.intervalMs = Math.max(shortestIntervalMs, timeoutMs / looksPerTimeout)
  }

  /** @returns what has been overdue for longest, if anything is. */
  look(atMs: number, work: Iterable<WorkSight>): OverdueWork | undefined {
    const gapMs = this.#sinceMs === undefined ? 0 : Math.min(Math.max(0, atMs - this.#sinceMs), this.intervalMs * 2)
    this.#sinceMs = atMs
    const before = this.#work
    this.#work = new Map()
    let overdue: OverdueWork | undefined
    for (const { key, mark } of work) {
      const known = before.get(key)
      const watchedMs = known?.mark === mark ? known.watchedMs + gapMs : 0
      this.#work.set(key, { mark, watchedMs })
      if (watchedMs >= this.#timeoutMs && watchedMs > (overdue?.forMs ?? 0)) overdue = { key, forMs: watchedMs }
    }
    return overdue
  }

  /** What was being worked on is gone. */
  forget(): void {
    this.#work.clear()
    this.#sinceMs = undefined
  }
}
