import type { Clock, Timer } from "@millrace/runtime"

/**
 * The clock of one simulated process: counts the timers that it has set, and can end with them, as a process does that is killed.
 */
export class ProcessClock implements Clock {
  readonly #clock: Clock
  readonly #live = new Set<Timer>()
  #isDead = false

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
    const inner = this.#clock.setTimer(delayMs, () => {
      this.#live.delete(timer)
      callback()
    })
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

  /** No timer of the process fires any more. */
  kill(): void {
    this.#isDead = true
    for (const timer of [...this.#live]) timer.cancel()
  }
}
