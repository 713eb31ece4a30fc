import { InvalidError } from "@millrace/contract"

/** Who waits for something to be handed out. */
export interface Waiter {
  /** Takes what is there; false when there is nothing. A throw goes to `failed`. */
  serve(): boolean
  failed(error: unknown): void
  /** The consumer was shut down. */
  ended(): void
}

/** Failures that wait for a caller; later ones are of the same cause. */
const failuresKept = 16

/** The callers that wait, in order, and the failures that wait for a caller. */
export class Callers {
  #waiters: Waiter[] = []
  readonly #failures: unknown[] = []
  #fatal: unknown
  /** Nothing is handed out any more: who waits is told so. */
  ended = false

  get waiting(): boolean {
    return this.#waiters.length > 0
  }

  /** Queues a caller. The answer takes it out again, and is false when it was served. */
  wait(waiter: Waiter): () => boolean {
    this.#waiters.push(waiter)
    return () => {
      const index = this.#waiters.indexOf(waiter)
      if (index >= 0) this.#waiters.splice(index, 1)
      return index >= 0
    }
  }

  /** Serves those who wait, in order, as far as it goes. */
  serve(): void {
    for (;;) {
      const waiter = this.#waiters[0]
      if (waiter === undefined) return
      let served: boolean
      try {
        served = waiter.serve()
      } catch (error) {
        this.#waiters.shift()
        waiter.failed(error)
        continue
      }
      if (!served && !this.ended) return
      this.#waiters.shift()
      if (!served) waiter.ended()
    }
  }

  /** The next caller gets this failure. */
  fail(error: unknown): void {
    if (this.#failures.length < failuresKept) this.#failures.push(error)
  }

  /** Everybody who waits gets this failure; later callers do not. */
  refuse(error: unknown): void {
    for (const waiter of this.#waiters.splice(0)) waiter.failed(error)
  }

  /** Every caller gets this failure from now on. */
  failForGood(error: unknown): void {
    this.#fatal ??= error
  }

  /** Whether a failure waits for a caller. */
  get failing(): boolean {
    return this.#failures.length > 0
  }

  /** @throws the failure that waits for a caller, if there is one */
  assertNone(): void {
    if (this.#fatal !== undefined) throw this.#fatal
    if (this.#failures.length > 0) throw this.#failures.shift()
  }
}

/** Why a call is refused while somebody else has the consumer's messages. */
export function takenError(): InvalidError {
  return new InvalidError(
    "the consumer's messages go to its handler: while run() or a reader is under way, or somebody waits for a message, nobody else can take them",
  )
}
