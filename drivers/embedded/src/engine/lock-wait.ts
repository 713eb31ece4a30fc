import { TimeoutError } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { isBusy } from "./storage-error.ts"

/** The bounds of one random wait, in milliseconds: short enough to win the lock soon, random so that waiters do not march in step. */
const shortestWaitMs = 0.05
const longestWaitMs = 0.45

const cell = new Int32Array(new SharedArrayBuffer(4))

/**
 * Waiting for SQLite's locks. Its own busy handler backs off up to 100 ms and lets two writers starve each other for seconds; short
 * random waits keep the longest wait below a tenth of one.
 */
export class LockWait {
  readonly #clock: Clock
  readonly #random: Random

  constructor(clock: Clock, random: Random) {
    this.#clock = clock
    this.#random = random
  }

  /** Blocks the thread for a short random time. */
  pause(): void {
    const part = this.#random.uint32() / 2 ** 32
    sleep(shortestWaitMs + part * (longestWaitMs - shortestWaitMs))
  }

  /**
   * Runs `action` until it meets no lock.
   * @throws TimeoutError (outcome rejected) when it still meets one after `boundMs`.
   */
  whileBusy<T>(action: () => T, boundMs: number, what: string): T {
    const start = this.#clock.monotonicMs()
    // The number of tries is bounded too, for a clock that stands still.
    for (let tries = 0; tries <= boundMs / shortestWaitMs; tries++) {
      const outcome = this.attempt(action)
      if (outcome !== undefined) return outcome.value
      if (this.#clock.monotonicMs() - start > boundMs) break
      this.pause()
    }
    throw lockTimeout(what, boundMs)
  }

  /** One try: `undefined` when a lock was in the way. */
  attempt<T>(action: () => T): { readonly value: T } | undefined {
    try {
      return { value: action() }
    } catch (error) {
      if (isBusy(error)) return undefined
      throw error
    }
  }
}

/** Blocks the thread. Only a worker, or code that is synchronous by nature, may do so. */
export function sleep(ms: number): void {
  Atomics.wait(cell, 0, 0, ms)
}

/** The error for a lock that others did not let go in time: rejected, since nothing had begun. */
export function lockTimeout(what: string, boundMs: number): TimeoutError {
  return new TimeoutError(`${what}: the store was locked by others for more than ${boundMs} ms; nothing was changed`, {
    outcome: "rejected",
  })
}
