/** Time, as an argument: the system's for programs, a virtual one for tests. Nothing else in Millrace reads a clock. */

/** A timer that was set. Cancelling twice, or after it fired, does nothing. */
export interface Timer {
  cancel(): void
}

export interface Clock {
  /** Wall time, microseconds since 1970. May jump. */
  nowMicros(): bigint
  /** A time that never goes back, in milliseconds with fractions. Only differences mean something, and only in one process. */
  monotonicMs(): number
  /** Calls back once. `delayMs` may be above 2^31. A timer with `background` does not keep the process alive. */
  setTimer(delayMs: number, callback: () => void, options?: { readonly background?: boolean }): Timer
}

/** Longer than this Node would fire at once. */
const longestTimeoutMs = 2 ** 31 - 1

export const systemClock: Clock = {
  nowMicros: () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)),
  monotonicMs: () => performance.now(),
  setTimer(delayMs, callback, options) {
    const due = performance.now() + delayMs
    let handle: NodeJS.Timeout
    const arm = (): void => {
      const left = Math.max(0, due - performance.now())
      handle = left > longestTimeoutMs ? setTimeout(arm, longestTimeoutMs) : setTimeout(callback, left)
      if (options?.background) handle.unref()
    }
    arm()
    return { cancel: () => clearTimeout(handle) }
  },
}
