import type { Clock, Timer } from "@millrace/runtime"

/** The end of a commit policy's interval. Runs only while there may be something to store: an idle consumer has no timer. */
export class CommitTimer {
  readonly #clock: Clock
  readonly #intervalMs: number
  readonly #due: () => void
  #timer: Timer | undefined
  #stopped = false

  constructor(clock: Clock, intervalMs: number, due: () => void) {
    this.#clock = clock
    this.#intervalMs = intervalMs
    this.#due = due
  }

  /** Begins an interval, unless one is running. */
  start(): void {
    if (this.#stopped) return
    this.#timer ??= this.#clock.setTimer(this.#intervalMs, () => {
      this.#timer = undefined
      this.#due()
    })
  }

  /** For good. */
  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
    this.#timer = undefined
  }
}
