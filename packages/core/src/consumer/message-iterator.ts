import { CancelledError, ClosedError, TimeoutError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { Message } from "../record/message.ts"
import type { HandOver } from "./hand-over.ts"

type Result = IteratorResult<Message, undefined>

const ended: Result = { done: true, value: undefined }

/** One call of `next`: without a promise chain when a message is there. */
export function nextOf(handOver: HandOver): Promise<Result> {
  let message: Message | undefined
  try {
    message = handOver.take()
  } catch (error) {
    return Promise.reject(error)
  }
  if (message !== undefined) return Promise.resolve({ done: false, value: message })
  if (handOver.ended) return Promise.resolve(ended)
  return new Promise((resolve, reject) => {
    handOver.wait({
      message: (value) => resolve({ done: false, value }),
      failed: reject,
      ended: () => resolve(ended),
    })
  })
}

/** One call of `nextWithin`. Neither a timer nor a listener stays behind, whichever way it ends. */
export function nextWithinOf(
  handOver: HandOver,
  clock: Clock,
  wait: { readonly what: string; readonly timeoutMs: number; readonly signal: AbortSignal | undefined },
): Promise<Message> {
  const { what, timeoutMs, signal } = wait
  if (signal?.aborted) return Promise.reject(cancelled(what, signal))
  let message: Message | undefined
  try {
    message = handOver.take()
  } catch (error) {
    return Promise.reject(error)
  }
  if (message !== undefined) return Promise.resolve(message)
  if (handOver.ended) return Promise.reject(new ClosedError(`${what} was shut down`))
  return new Promise((resolve, reject) => {
    const done = (): void => {
      timer.cancel()
      signal?.removeEventListener("abort", abort)
    }
    const abort = (): void => {
      if (leave()) waiter.failed(cancelled(what, signal))
    }
    const waiter = {
      message(value: Message) {
        done()
        resolve(value)
      },
      failed(error: unknown) {
        done()
        reject(error)
      },
      ended() {
        done()
        reject(new ClosedError(`${what} was shut down`))
      },
    }
    const leave = handOver.wait(waiter)
    const timer = clock.setTimer(timeoutMs, () => {
      if (leave())
        waiter.failed(new TimeoutError(`${what}: no message within ${timeoutMs} ms`, { outcome: "rejected" }))
    })
    signal?.addEventListener("abort", abort, { once: true })
  })
}

/** The iterator behind `for await`: plain calls of `next`, and a `return` that knows what leaving early means. */
export class MessageIterator implements AsyncIterator<Message, undefined> {
  readonly #handOver: HandOver
  #left = false

  constructor(handOver: HandOver) {
    this.#handOver = handOver
  }

  next(): Promise<Result> {
    return this.#left ? Promise.resolve(ended) : nextOf(this.#handOver)
  }

  return(): Promise<Result> {
    if (!this.#left) this.#handOver.abandon()
    this.#left = true
    return Promise.resolve(ended)
  }
}

/** The same with a signal: a call that waits, and every later one, fails with CancelledError once it fires. */
export class CancellableIterator implements AsyncIterator<Message, undefined> {
  readonly #handOver: HandOver
  readonly #what: string
  readonly #signal: AbortSignal
  #left = false

  constructor(handOver: HandOver, what: string, signal: AbortSignal) {
    this.#handOver = handOver
    this.#what = what
    this.#signal = signal
  }

  next(): Promise<Result> {
    if (this.#left) return Promise.resolve(ended)
    const handOver = this.#handOver
    const signal = this.#signal
    if (signal.aborted) {
      // Asking for the next message says that the last one is handled, whatever the answer.
      handOver.acknowledge()
      return Promise.reject(cancelled(this.#what, signal))
    }
    let message: Message | undefined
    try {
      message = handOver.take()
    } catch (error) {
      return Promise.reject(error)
    }
    if (message !== undefined) return Promise.resolve({ done: false, value: message })
    if (handOver.ended) return Promise.resolve(ended)
    return this.#wait()
  }

  return(): Promise<Result> {
    if (!this.#left) this.#handOver.abandon()
    this.#left = true
    return Promise.resolve(ended)
  }

  #wait(): Promise<Result> {
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
      const leave = this.#handOver.wait({
        message: settle((value) => resolve({ done: false, value })),
        failed: settle(reject),
        ended: settle<void>(() => resolve(ended)),
      })
      signal.addEventListener("abort", abort, { once: true })
    })
  }
}

function cancelled(what: string, signal: AbortSignal | undefined): CancelledError {
  return new CancelledError(`${what}: the signal fired`, { cause: signal?.reason })
}
