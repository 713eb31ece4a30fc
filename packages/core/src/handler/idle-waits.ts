import type { Clock } from "@millrace/runtime"

/** Those who wait until nothing of a run is under way, each with a deadline. */
export class IdleWaits {
  readonly #clock: Clock
  readonly #checks = new Set<() => void>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Settles once `idle` answers true: it is asked at once, and at each `check`.
   * @param late Called at the deadline; what it answers is what the wait fails with.
   */
  until(idle: () => boolean, timeoutMs: number, late: () => Error): Promise<void> {
    return new Promise((resolve, reject) => {
      const check = (): void => {
        if (!idle()) return
        leave()
        resolve()
      }
      const leave = (): void => {
        timer.cancel()
        this.#checks.delete(check)
      }
      const timer = this.#clock.setTimer(timeoutMs, () => {
        leave()
        reject(late())
      })
      this.#checks.add(check)
      check()
    })
  }

  /** Something is not under way any more. */
  check(): void {
    for (const check of [...this.#checks]) check()
  }
}
