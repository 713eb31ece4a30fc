import type { Clock } from "@millrace/runtime"

/** The pauses between polls that find nothing: short at first, so that what follows soon is read soon. */
const shortestMs = 2
const longestMs = 100
const growth = 1.5

/**
 * The waits of a reader at the end of its partitions. Wire 0.11 has no long poll: a server that is asked answers at once, so it is asked again
 * after a pause that grows while nothing comes.
 */
export class Pauses {
  readonly #clock: Clock
  #nextMs = shortestMs
  #wake: (() => void) | undefined
  #awake = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Something came: begin with short pauses again. */
  reset(): void {
    this.#nextMs = shortestMs
  }

  /** Ends the pause that is under way, or else the next one at once. */
  wake(): void {
    this.#awake = true
    this.#wake?.()
  }

  /** Takes at most `mostMs`. One at a time. */
  async pause(mostMs: number): Promise<void> {
    const delayMs = Math.min(this.#nextMs, mostMs)
    this.#nextMs = Math.min(longestMs, this.#nextMs * growth)
    if (!this.#awake) {
      await new Promise<void>((resolve) => {
        const timer = this.#clock.setTimer(delayMs, resolve)
        this.#wake = () => {
          timer.cancel()
          resolve()
        }
      })
      this.#wake = undefined
    }
    this.#awake = false
  }
}
