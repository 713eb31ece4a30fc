import { ClosedError, InvalidError, type MillraceError, TimeoutError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { OptionReader, shown } from "../client/options.ts"
import { signalFired } from "../client/signal-fired.ts"
import { asMillraceError } from "../partition/failure.ts"
import type { PullOptions } from "./queue-consumer.ts"
import type { QueueIntake } from "./queue-intake.ts"
import type { QueuedMessage, QueueMessage } from "./queue-message.ts"

export interface TakerParts {
  readonly what: string
  readonly clock: Clock
  readonly intake: QueueIntake
  /** Of the consumer. */
  readonly signal: AbortSignal | undefined
  /** It does not decrypt: goes the way of a failed handler. */
  unreadable(message: QueuedMessage, error: MillraceError): void
}

/** How long and for how many a caller waits. */
interface WaitTerms<T> {
  readonly want: number
  /** Takes what is there; absent when there is nothing. */
  readonly serve: () => T | undefined
  /** On the monotonic clock; absent: for ever. */
  readonly deadlineMs: number | undefined
  readonly signal?: AbortSignal | undefined
}

const mostInPull = 10_000

/** Takes messages for callers, who wait where there are none. */
export class QueueTaker {
  readonly #parts: TakerParts
  /** What the last caller got who settles by itself, and when: the time until it asks again is what it takes to handle it. */
  #given = 0
  #givenMs = 0

  constructor(parts: TakerParts) {
    this.#parts = parts
  }

  /** @throws ClosedError behind the shutdown, CancelledError when the consumer's signal has fired */
  assertOpen(): void {
    const { intake, signal, what } = this.#parts
    if (intake.callers.ended) throw new ClosedError(`${what} was shut down`)
    if (signal?.aborted) throw signalFired(what, signal)
  }

  /** The next message, decrypted. @throws DecodeError when it does not decrypt; a failure that waits for a caller */
  take(): QueuedMessage | undefined {
    const message = this.#parts.intake.take()
    if (message !== undefined) this.#open(message)
    return message
  }

  /**
   * The next message, or `undefined` when the deadline is over.
   * @param want How many the caller would take, one after the other.
   */
  async next(deadlineMs: number | undefined, want = 1): Promise<QueuedMessage | undefined> {
    this.assertOpen()
    const message = this.take()
    if (message !== undefined) return message
    return await this.#wait({ want, deadlineMs, serve: () => this.take() })
  }

  /** What is there now: also when nobody has asked the queue before. */
  async nextNow(): Promise<QueuedMessage | undefined> {
    this.assertOpen()
    const message = this.take()
    if (message !== undefined) return message
    await this.#parts.intake.fetch(1)
    this.assertOpen()
    return this.take()
  }

  /** @throws as `QueueConsumer.pull` */
  async pull(options: PullOptions | undefined): Promise<QueueMessage[]> {
    const { clock, intake, what } = this.#parts
    const owner = `${what}: pull`
    const reader = new OptionReader<PullOptions>(owner, options, ["max", "maxWaitMs", "signal"])
    const max = reader.whole("max", { min: 1, max: mostInPull, fallback: 1 })
    const maxWaitMs = reader.duration("maxWaitMs", { zero: true, fallback: undefined })
    const signal = options?.signal
    if (signal !== undefined && !(signal instanceof AbortSignal)) {
      throw new InvalidError(`${owner}: option "signal" is ${shown(signal)}; it must be an AbortSignal`)
    }
    this.assertOpen()
    if (signal?.aborted) throw signalFired(what, signal)
    this.#asks()
    const serve = (): QueuedMessage[] | undefined => this.#takeUpTo(max)
    const there = serve()
    if (there !== undefined) return this.#gives(there)
    if (maxWaitMs === 0) {
      await intake.fetch(max)
      this.assertOpen()
      return this.#gives(serve() ?? [])
    }
    const deadlineMs = maxWaitMs === undefined ? undefined : clock.monotonicMs() + maxWaitMs
    return this.#gives((await this.#wait({ want: max, deadlineMs, serve, signal })) ?? [])
  }

  /** Ends with the consumer; a message that a call waits for is the next call's when the iterator is left. */
  iterator(): AsyncIterator<QueueMessage, undefined> {
    let left = false
    const leaving = new AbortController()
    const done = { done: true, value: undefined } as const
    const next = async (): Promise<IteratorResult<QueueMessage, undefined>> => {
      if (left || this.#parts.intake.callers.ended) return done
      try {
        this.assertOpen()
        this.#asks()
        const message =
          this.take() ??
          (await this.#wait({ want: 1, deadlineMs: undefined, serve: () => this.take(), signal: leaving.signal }))
        if (message === undefined) return done
        this.#gives([message])
        return { done: false, value: message }
      } catch (error) {
        if (left || error instanceof ClosedError) return done
        throw error
      }
    }
    return {
      next,
      return: async () => {
        left = true
        leaving.abort()
        return done
      },
    }
  }

  /** At least one, or `undefined`. What fails behind the first is the next call's. */
  #takeUpTo(max: number): QueuedMessage[] | undefined {
    const { intake } = this.#parts
    const first = this.take()
    if (first === undefined) return undefined
    const messages = [first]
    while (messages.length < max) {
      const message = intake.takeQuietly()
      if (message === undefined) break
      if (!opens(message)) {
        intake.putBack(message)
        break
      }
      messages.push(message)
    }
    return messages
  }

  #open(message: QueuedMessage): void {
    try {
      message.open()
    } catch (error) {
      this.#parts.unreadable(message, asMillraceError(error))
      throw error
    }
  }

  #asks(): void {
    const { clock, intake } = this.#parts
    if (this.#given > 0) intake.prefetch.handled(this.#given, clock.monotonicMs() - this.#givenMs)
    this.#given = 0
  }

  #gives<T extends readonly unknown[]>(messages: T): T {
    this.#given = messages.length
    this.#givenMs = this.#parts.clock.monotonicMs()
    return messages
  }

  /** Neither a timer nor a listener stays behind, whichever way it ends. */
  #wait<T>({ want, serve, deadlineMs, signal }: WaitTerms<T>): Promise<T | undefined> {
    const { intake, clock, what, signal: own } = this.#parts
    return new Promise((resolve, reject) => {
      const done = (): void => {
        timer?.cancel()
        own?.removeEventListener("abort", abortOwn)
        signal?.removeEventListener("abort", abort)
      }
      const fail = (error: unknown): void => {
        done()
        reject(error)
      }
      const abort = (): void => {
        if (leave()) fail(signalFired(what, signal))
      }
      const abortOwn = (): void => {
        if (leave()) fail(signalFired(what, own))
      }
      const expire = (): void => {
        if (!leave()) return
        done()
        resolve(undefined)
      }
      const timer =
        deadlineMs === undefined ? undefined : clock.setTimer(Math.max(0, deadlineMs - clock.monotonicMs()), expire)
      own?.addEventListener("abort", abortOwn, { once: true })
      signal?.addEventListener("abort", abort, { once: true })
      // Last: the call may be answered at once.
      const leave = intake.wait({
        want,
        serve() {
          const value = serve()
          if (value === undefined) return false
          done()
          resolve(value)
          return true
        },
        failed: fail,
        ended: () => fail(new ClosedError(`${what} was shut down`)),
      })
    })
  }
}

/** Why nothing came in time. */
export function noMessage(what: string, timeoutMs: number): TimeoutError {
  return new TimeoutError(`${what}: no message within ${timeoutMs} ms`, { outcome: "rejected" })
}

function opens(message: QueuedMessage): boolean {
  try {
    message.open()
    return true
  } catch {
    // Whatever it is comes again when the message is the first.
    return false
  }
}
