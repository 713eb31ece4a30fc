import { ClosedError, TimeoutError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { signalFired } from "../client/signal-fired.ts"
import type { BatchMessage } from "../record/message.ts"
import type { MessageBatch } from "../record/message-batch.ts"
import type { HandOver } from "./hand-over.ts"

type Result<T> = IteratorResult<T, undefined>

/** What is taken of a consumer: its messages, or its batches. */
export interface Taker<T> {
  readonly handOver: HandOver
  /** Asks for the next one: those before are handled. @throws what the consumer has to tell */
  take(): T | undefined
  /** The next one for a caller that waits. */
  pull(): T | undefined
}

/** Takes message by message. */
export class MessageTaker implements Taker<BatchMessage> {
  readonly handOver: HandOver

  constructor(handOver: HandOver) {
    this.handOver = handOver
  }
  take(): BatchMessage | undefined {
    return this.handOver.take()
  }
  pull(): BatchMessage | undefined {
    return this.handOver.pull()
  }
}

/** Takes batch by batch. */
export class BatchTaker implements Taker<MessageBatch> {
  readonly handOver: HandOver

  constructor(handOver: HandOver) {
    this.handOver = handOver
  }
  take(): MessageBatch | undefined {
    return this.handOver.takeBatch()
  }
  pull(): MessageBatch | undefined {
    return this.handOver.pullBatch()
  }
}

/**
 * One call of `next`: without a promise chain when there is something.
 * @param wait What to do while there is nothing.
 */
export function nextOf<T>(
  taker: Taker<T>,
  wait: (taker: Taker<T>) => Promise<Result<T>> = waitFor,
): Promise<Result<T>> {
  let value: T | undefined
  try {
    value = taker.take()
  } catch (error) {
    return Promise.reject(error)
  }
  if (value !== undefined) return Promise.resolve({ done: false, value })
  return taker.handOver.ended ? Promise.resolve(ended()) : wait(taker)
}

/** One call of `nextWithin`. Neither a timer nor a listener stays behind, whichever way it ends. */
export function nextWithinOf<T>(
  taker: Taker<T>,
  clock: Clock,
  limit: { readonly what: string; readonly timeoutMs?: number; readonly signal?: AbortSignal | undefined },
): Promise<T> {
  const { what, timeoutMs, signal } = limit
  if (signal?.aborted) return Promise.reject(signalFired(what, signal))
  let value: T | undefined
  try {
    value = taker.take()
  } catch (error) {
    return Promise.reject(error)
  }
  if (value !== undefined) return Promise.resolve(value)
  if (taker.handOver.ended) return Promise.reject(new ClosedError(`${what} was shut down`))
  return new Promise((resolve, reject) => {
    const done = (): void => {
      timer?.cancel()
      signal?.removeEventListener("abort", abort)
    }
    const fail = (error: unknown): void => {
      done()
      reject(error)
    }
    const abort = (): void => {
      if (leave()) fail(signalFired(what, signal))
    }
    const expire = (): void => {
      if (leave()) fail(new TimeoutError(`${what}: no message within ${timeoutMs} ms`, { outcome: "rejected" }))
    }
    const timer = timeoutMs === undefined ? undefined : clock.setTimer(timeoutMs, expire)
    signal?.addEventListener("abort", abort, { once: true })
    // Last: the call may be answered at once.
    const leave = queue(taker, {
      got(next) {
        done()
        resolve(next)
      },
      failed: fail,
      ended: () => fail(new ClosedError(`${what} was shut down`)),
    })
  })
}

/**
 * The iterator behind `for await`: plain calls of `next`, and a `return` that knows what leaving early means. With a signal, a call that
 * waits, and every later one, fails with CancelledError once it fires.
 */
export class ConsumerIterator<T> implements AsyncIterator<T, undefined> {
  readonly #taker: Taker<T>
  readonly #what: string
  readonly #signal: AbortSignal | undefined
  readonly #wait = (taker: Taker<T>): Promise<Result<T>> => this.#waitFor(taker)
  /** Ends a call that waits. */
  readonly #calls = new Set<() => void>()
  #left = false

  constructor(taker: Taker<T>, what: string, signal: AbortSignal | undefined) {
    this.#taker = taker
    this.#what = what
    this.#signal = signal
  }

  next(): Promise<Result<T>> {
    if (this.#left) return Promise.resolve(ended())
    const signal = this.#signal
    if (signal?.aborted) {
      // Asking for the next one says that the last one is handled, whatever the answer.
      this.#taker.handOver.acknowledge()
      return Promise.reject(signalFired(this.#what, signal))
    }
    return nextOf(this.#taker, this.#wait)
  }

  /** A call that still waits (a stream that is destroyed) is done too: a message that comes later is for somebody else. */
  return(): Promise<Result<T>> {
    if (!this.#left) this.#taker.handOver.abandon()
    this.#left = true
    for (const end of this.#calls) end()
    return Promise.resolve(ended())
  }

  #waitFor(taker: Taker<T>): Promise<Result<T>> {
    const signal = this.#signal
    return new Promise((resolve, reject) => {
      const done = (): void => {
        signal?.removeEventListener("abort", abort)
        this.#calls.delete(end)
      }
      const finish = (): void => {
        done()
        resolve(ended())
      }
      const fail = (error: unknown): void => {
        done()
        reject(error)
      }
      const abort = (): void => {
        if (leave()) fail(signalFired(this.#what, signal))
      }
      const end = (): void => {
        if (leave()) finish()
      }
      signal?.addEventListener("abort", abort, { once: true })
      this.#calls.add(end)
      const leave = queue(taker, {
        got(value) {
          done()
          resolve({ done: false, value })
        },
        failed: fail,
        ended: finish,
      })
    })
  }
}

function waitFor<T>(taker: Taker<T>): Promise<Result<T>> {
  return new Promise((resolve, reject) => {
    queue(taker, {
      got: (value) => resolve({ done: false, value }),
      failed: reject,
      ended: () => resolve(ended()),
    })
  })
}

/** Queues one call. The answer takes it out again, and is false when it was served. */
function queue<T>(
  taker: Taker<T>,
  caller: { got(value: T): void; failed(error: unknown): void; ended(): void },
): () => boolean {
  return taker.handOver.wait({
    serve() {
      const value = taker.pull()
      if (value === undefined) return false
      caller.got(value)
      return true
    },
    failed: caller.failed,
    ended: caller.ended,
  })
}

function ended(): IteratorReturnResult<undefined> {
  return { done: true, value: undefined }
}
