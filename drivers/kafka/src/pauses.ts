/** Waits that end early when what waits is closed. */
import type { Clock } from "@millrace/runtime"

export class Pauses {
  readonly #clock: Clock
  readonly #waits = new Set<() => void>()
  #closed = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Settles after so many ms, or at once when it is closed: whoever waited finds that out by what it does next. */
  wait(ms: number): Promise<void> {
    if (this.#closed) return Promise.resolve()
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel()
        this.#waits.delete(wake)
        resolve()
      }
      const timer = this.#clock.setTimer(ms, wake)
      this.#waits.add(wake)
    })
  }

  close(): void {
    this.#closed = true
    for (const wake of [...this.#waits]) wake()
  }
}
