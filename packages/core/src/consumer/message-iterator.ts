import { CancelledError, ClosedError, TimeoutError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
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

/** One call of `next`: without a promise chain when there is something. */
export function nextOf<T>(taker: Taker<T>): Promise<Result<T>> {
  let value: T | undefined
  try {
    value = taker.take()
  } catch (error) {
    return Promise.reject(error)
  }
  if (value !== undefined) return Promise.resolve({ done: false, value })
  if (taker.handOver.ended) return Promise.resolve(ended())
  return new Promise((resolve, reject) => {
    wait(taker, {
      got: (next) => resolve({ done: false, value: next }),
      failed: reject,
      ended: () => resolve(ended()),
    })
  })
}

/** One call of `nextWithin`. Neither a timer nor a listener stays behind, whichever way it ends. */
export function nextWithinOf<T>(
  taker: Taker<T>,
  clock: Clock,
  limit: { readonly what: string; readonly timeoutMs?: number; readonly signal?: AbortSignal | undefined },
): Promise<T> {
  const { what, timeoutMs, signal } = limit
  if (signal?.aborted) return Promise.reject(cancelled(what, signal))
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
      if (leave()) fail(cancelled(what, signal))
    }
    const leave = wait(taker, {
      got(next) {
        done()
        resolve(next)
      },
      failed: fail,
      ended: () => fail(new ClosedError(`${what} was shut down`)),
    })
    const expire = (): void => {
      if (leave()) fail(new TimeoutError(`${what}: no message within ${timeoutMs} ms`, { outcome: "rejected" }))
    }
    const timer = timeoutMs === undefined ? undefined : clock.setTimer(timeoutMs, expire)
    signal?.addEventListener("abort", abort, { once: true })
  })
}

/** The iterator behind `for await`: plain calls of `next`, and a `return` that knows what leaving early means. */
export class ConsumerIterator<T> implements AsyncIterator<T, undefined> {
  readonly #taker: Taker<T>
  #left = false

  constructor(taker: Taker<T>) {
    this.#taker = taker
  }

  next(): Promise<Result<T>> {
    return this.#left ? Promise.resolve(ended()) : nextOf(this.#taker)
  }

  return(): Promise<Result<T>> {
    if (!this.#left) this.#taker.handOver.abandon()
    this.#left = true
    return Promise.resolve(ended())
  }
}

/** The same with a signal: a call that waits, and every later one, fails with CancelledError once it fires. */
export class CancellableIterator<T> implements AsyncIterator<T, undefined> {
  readonly #taker: Taker<T>
  readonly #what: string
  readonly #signal: AbortSignal
  #left = false

  constructor(taker: Taker<T>, what: string, signal: AbortSignal) {
    this.#taker = taker
    this.#what = what
    this.#signal = signal
  }

  next(): Promise<Result<T>> {
    if (this.#left) return Promise.resolve(ended())
    const taker = this.#taker
    const signal = this.#signal
    if (signal.aborted) {
      // Asking for the next one says that the last one is handled, whatever the answer.
      taker.handOver.acknowledge()
      return Promise.reject(cancelled(this.#what, signal))
    }
    let value: T | undefined
    try {
      value = taker.take()
    } catch (error) {
      return Promise.reject(error)
    }
    if (value !== undefined) return Promise.resolve({ done: false, value })
    if (taker.handOver.ended) return Promise.resolve(ended())
    return this.#wait()
  }

  return(): Promise<Result<T>> {
    if (!this.#left) this.#taker.handOver.abandon()
    this.#left = true
    return Promise.resolve(ended())
  }

  #wait(): Promise<Result<T>> {
    const signal = this.#signal
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        if (leave()) reject(cancelled(this.#what, signal))
      }
      const settle = <V>(how: (value: V) => void): ((value: V) => void) => {
        return (value) => {
          signal.removeEventListener("abort", abort)
          how(value)
        }
      }
      const leave = wait(this.#taker, {
        got: settle((value) => resolve({ done: false, value })),
        failed: settle(reject),
        ended: settle<void>(() => resolve(ended())),
      })
      signal.addEventListener("abort", abort, { once: true })
    })
  }
}

/** Queues one call. The answer takes it out again, and is false when it was served. */
function wait<T>(
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

function cancelled(what: string, signal: AbortSignal | undefined): CancelledError {
  return new CancelledError(`${what}: the signal fired`, { cause: signal?.reason })
}
