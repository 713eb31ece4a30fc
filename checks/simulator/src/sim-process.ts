import type { Clock, Timer } from "@millrace/runtime"

/** Less than this is the rounding of sums, in ms. */
const shortestMs = 0.001

/**
 * The clock of one simulated process: counts the timers that it has set, and can end with them, as a process does that is killed.
 */
export class ProcessClock implements Clock {
  readonly #clock: Clock
  readonly #live = new Set<Timer>()
  #isDead = false
  #stalledUntilMs = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  nowMicros(): bigint {
    return this.#clock.nowMicros()
  }

  monotonicMs(): number {
    return this.#clock.monotonicMs()
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    if (this.#isDead) return { cancel: () => {} }
    const fire = (): void => {
      const leftMs = this.#stalledUntilMs - this.#clock.monotonicMs()
      if (leftMs > shortestMs) {
        inner = this.#clock.setTimer(leftMs, fire)
        return
      }
      this.#live.delete(timer)
      callback()
    }
    let inner = this.#clock.setTimer(delayMs, fire)
    const timer: Timer = {
      cancel: () => {
        this.#live.delete(timer)
        inner.cancel()
      },
    }
    this.#live.add(timer)
    return timer
  }

  /** Timers that wait: 0 after a clean shutdown. */
  get timers(): number {
    return this.#live.size
  }

  /** The process does not get to run for so long: timers that fall due meanwhile fire at the end of it. */
  stall(ms: number): void {
    this.#stalledUntilMs = Math.max(this.#stalledUntilMs, this.#clock.monotonicMs() + ms)
  }

  /** No timer of the process fires any more. */
  kill(): void {
    this.#isDead = true
    for (const timer of [...this.#live]) timer.cancel()
  }
}
