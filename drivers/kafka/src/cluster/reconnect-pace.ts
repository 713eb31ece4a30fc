/**
 * When one server may be tried again: at once after a connection that held, then after waits that double. Whatever the load, one server
 * sees at most 20 attempts in a minute. Pure: the time comes in with each call.
 */
import { backoffMs, type Random } from "@millrace/runtime"

/** The first wait and the longest, ms, before the jitter. */
const firstWaitMs = 250
const longestWaitMs = 4_000

/** A connection that ended sooner counts as a failed attempt, so that a server that drops everybody is not stormed. */
const steadyMs = 5_000

export class ReconnectPace {
  readonly #random: Random
  #failures = 0
  #readyAtMs = 0
  #upSinceMs: number | undefined

  constructor(random: Random) {
    this.#random = random
  }

  /** Attempts that failed since the last connection that held. */
  get failures(): number {
    return this.#failures
  }

  /** How long to wait before the next attempt; 0 when it may be now. */
  waitMs(nowMs: number): number {
    return Math.max(0, this.#readyAtMs - nowMs)
  }

  connected(nowMs: number): void {
    this.#upSinceMs = nowMs
  }

  /** The connection ended. */
  lost(nowMs: number): void {
    const upMs = this.#upSinceMs === undefined ? 0 : nowMs - this.#upSinceMs
    this.#upSinceMs = undefined
    if (upMs >= steadyMs) this.#failures = 0
    else this.failed(nowMs)
  }

  /** The wait only ever grows by the jitter: up to a quarter, so that clients of one server spread out. */
  failed(nowMs: number): void {
    const wait = backoffMs(this.#failures, firstWaitMs, longestWaitMs)
    this.#failures++
    this.#readyAtMs = nowMs + wait * (1 + this.#random.uint32() / 2 ** 34)
  }
}
