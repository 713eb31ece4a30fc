import type { MillraceError, QueueDelivery, QueueSession } from "@millrace/contract"
import { backoffMs, type Clock, type Random, type Timer } from "@millrace/runtime"
import { jittered } from "../handler/retry.ts"
import { asMillraceError } from "../partition/failure.ts"
import { Wakeup } from "../partition/wakeup.ts"
import { longestUsefulPullMs, shortestWaitMs } from "./queue-waits.ts"

/** For whom the pump works. */
export interface PumpHost {
  /** How many messages are wanted now. */
  readonly want: number
  /** The most bytes of the next request. */
  readonly roomBytes: number
  /** @param current Whether what comes is still wanted: else it goes back. */
  received(deliveries: readonly QueueDelivery[], askedMs: number, current: boolean): void
  /** A request failed and will not be tried again before `resume`. */
  failedForGood(error: MillraceError): void
}

export interface PumpParts {
  readonly session: QueueSession
  readonly clock: Clock
  readonly random: Random
  readonly host: PumpHost
}

/** The wait before a request that failed is tried again; it doubles. */
const firstRetryMs = 100
const longestRetryMs = 5000
/** The pause behind an answer that came early and brought nothing; it doubles too. */
const shortestPauseMs = 1
const longestPauseMs = 64

/** Keeps one request for messages under way as long as some are wanted. */
export class QueuePump {
  readonly #parts: PumpParts
  readonly #waitMs: number
  readonly #wakeup = new Wakeup()
  #loop: Promise<void> | undefined
  #pause: Timer | undefined
  #closed = false
  /** A request failed for good: nothing more is asked until somebody calls again. */
  #halted = false
  /** Requests that failed in a row. */
  #failures = 0
  /** Early answers in a row that brought nothing. */
  #vain = 0
  /** Messages that are on their way back, where nothing may be asked for before they are. */
  #blocked = 0
  readonly #blocks = new Set<Timer>()
  /** Requests are counted; those up to the stale one belong to an order that is no longer kept. */
  #asked = 0
  #stale = 0

  constructor(parts: PumpParts) {
    this.#parts = parts
    this.#waitMs = longestUsefulPullMs(shortestWaitMs(parts.session.spec))
  }

  /** Something is wanted that was not before. */
  wake(): void {
    this.#wakeup.wake()
  }

  /** Somebody calls: what failed for good may be asked again. */
  resume(): void {
    this.#halted = false
    this.#loop ??= this.#run()
    this.#wakeup.wake()
  }

  /** What requests bring that are under way goes back. */
  discard(): void {
    this.#stale = this.#asked
  }

  /**
   * Nothing is asked for until the answer is called.
   * @param waitMs With `false` it goes on only after so long: nobody knows, and a wait has to decide.
   */
  block(waitMs: number): (known: boolean) => void {
    this.#blocked++
    const unblock = (): void => {
      this.#blocked--
      this.#wakeup.wake()
    }
    return (known) => {
      if (known || this.#closed) {
        unblock()
        return
      }
      const timer = this.#parts.clock.setTimer(waitMs, () => {
        this.#blocks.delete(timer)
        unblock()
      })
      this.#blocks.add(timer)
    }
  }

  /** Asks once for what is there. @throws what the request failed with */
  async fetch(maxMessages: number): Promise<void> {
    if (this.#blocked > 0) return
    const { session, clock, host } = this.#parts
    const askedMs = clock.monotonicMs()
    const round = ++this.#asked
    const deliveries = await session.pull({ maxMessages, maxBytes: host.roomBytes, maxWaitMs: 0 })
    if (deliveries.length > 0) host.received(deliveries, askedMs, this.#isCurrent(round))
  }

  /** Nothing more is asked. */
  end(): void {
    this.#closed = true
    this.#pause?.cancel()
    for (const timer of this.#blocks) timer.cancel()
    this.#wakeup.wake()
  }

  /** Behind the end of the session. Settles when nothing is under way. */
  async close(): Promise<void> {
    await this.#loop
  }

  async #run(): Promise<void> {
    while (!this.#closed) {
      const idle = this.#blocked > 0 || this.#pause !== undefined || this.#halted
      const want = idle ? 0 : this.#parts.host.want
      if (want === 0) await this.#wakeup.sleep()
      else await this.#pull(want)
    }
  }

  async #pull(maxMessages: number): Promise<void> {
    const { session, clock, host } = this.#parts
    const askedMs = clock.monotonicMs()
    const round = ++this.#asked
    let deliveries: readonly QueueDelivery[]
    try {
      deliveries = await session.pull({ maxMessages, maxBytes: host.roomBytes, maxWaitMs: this.#waitMs })
    } catch (error) {
      this.#failed(asMillraceError(error))
      return
    }
    this.#failures = 0
    if (deliveries.length > 0) {
      this.#vain = 0
      host.received(deliveries, askedMs, this.#isCurrent(round))
      return
    }
    const early = clock.monotonicMs() - askedMs < Math.max(this.#waitMs / 2, shortestPauseMs)
    if (early) this.#rest(Math.min(longestPauseMs, shortestPauseMs * 2 ** this.#vain))
    this.#vain = early ? Math.min(this.#vain + 1, longestPauseMs) : 0
  }

  #isCurrent(round: number): boolean {
    return !this.#closed && round > this.#stale
  }

  #failed(error: MillraceError): void {
    if (this.#closed) return
    if (error.retryable) {
      this.#rest(jittered(backoffMs(this.#failures++, firstRetryMs, longestRetryMs), this.#parts.random))
      return
    }
    this.#halted = true
    this.#parts.host.failedForGood(error)
  }

  #rest(ms: number): void {
    if (this.#closed) return
    this.#pause?.cancel()
    this.#pause = this.#parts.clock.setTimer(ms, () => {
      this.#pause = undefined
      this.#wakeup.wake()
    })
  }
}
