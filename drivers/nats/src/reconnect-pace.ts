import { backoffMs, type Random } from "@millrace/runtime"

/** The first wait, and the longest, in ms: 5 attempts within 8 s, then one each 5 s, so at most 18 a minute. */
const baseMs = 250
const maxMs = 5_000
/** The wait is spread over 85 to 115 % of its length, so that many clients do not come back at once. */
const spread = 0.3

/**
 * How long the client waits between attempts to reconnect. nats.js asks for the least time between two attempts at *one* server, and
 * takes the servers in turn; the pace is for all of them together.
 */
export class ReconnectPace {
  readonly #servers: number
  readonly #random: Random
  #attempts = 0
  #delayMs = 0
  #drawnFor = -1

  constructor(servers: number, random: Random) {
    this.#servers = servers
    this.#random = random
  }

  /** An attempt begins. */
  attempted(): void {
    this.#attempts++
  }

  /** The connection is there: the next outage begins with short waits. */
  restored(): void {
    this.#attempts = 0
    this.#drawnFor = -1
  }

  /** The least time between two attempts at the same server, in ms: the same until another attempt was made. */
  delayMs(): number {
    if (this.#drawnFor !== this.#attempts) {
      const retry = Math.max(0, this.#attempts - this.#servers)
      const share = 1 - spread / 2 + (spread * this.#random.uint32()) / 2 ** 32
      this.#delayMs = Math.round(backoffMs(retry, baseMs, maxMs) * share * this.#servers)
      this.#drawnFor = this.#attempts
    }
    return this.#delayMs
  }
}
