import { backoffMs, type Timer } from "@millrace/runtime"
import type { Connection } from "./connection.ts"

/** Pauses between attempts to come to life again: the first, and the longest, in ms. Half of each is chance. */
const firstRetryMs = 100
const longestRetryMs = 2_000

/** When a lane tries again: after a pause that grows with each attempt that came to nothing. The timer keeps no process alive. */
export class ReaderRetry {
  readonly #connection: Connection
  readonly #again: () => void
  #timer: Timer | undefined
  #attempts = 0

  constructor(connection: Connection, again: () => void) {
    this.#connection = connection
    this.#again = again
  }

  /** Something came: the next pause is short again. */
  succeeded(): void {
    this.#attempts = 0
  }

  schedule(): void {
    const { clock, random } = this.#connection
    const delayMs = backoffMs(this.#attempts++, firstRetryMs, longestRetryMs) * (0.5 + random.uint32() / 2 ** 33)
    this.cancel()
    this.#timer = clock.setTimer(
      delayMs,
      () => {
        this.#timer = undefined
        this.#again()
      },
      { background: true },
    )
  }

  cancel(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }
}
