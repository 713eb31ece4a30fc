import type { Clock, Timer } from "@millrace/runtime"
import type { LoopBlock } from "./consumer-events.ts"

/** Ticks within one threshold: a block that is longer by a quarter is seen for certain. */
const ticksPerThreshold = 4

/**
 * Measures how late a timer comes, which is for how long the event loop did not turn: a handler that computes, a process that was
 * stopped. Heartbeats of this process came late by as much. Costs four timers a threshold, and does not keep the process alive.
 */
export class LoopGauge {
  readonly #clock: Clock
  readonly #thresholdMs: number
  readonly #intervalMs: number
  readonly #blocked: (block: LoopBlock) => void
  #timer: Timer | undefined
  #dueMs = 0

  /** @param blocked Told in the turn in which the loop goes on. */
  constructor(clock: Clock, thresholdMs: number, blocked: (block: LoopBlock) => void) {
    this.#clock = clock
    this.#thresholdMs = thresholdMs
    this.#intervalMs = thresholdMs / ticksPerThreshold
    this.#blocked = blocked
  }

  start(): void {
    if (this.#timer === undefined) this.#arm()
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #arm(): void {
    this.#dueMs = this.#clock.monotonicMs() + this.#intervalMs
    this.#timer = this.#clock.setTimer(this.#intervalMs, () => this.#tick(), { background: true })
  }

  #tick(): void {
    const delayMs = this.#clock.monotonicMs() - this.#dueMs
    this.#arm()
    if (delayMs >= this.#thresholdMs) this.#blocked({ delayMs, thresholdMs: this.#thresholdMs })
  }
}
