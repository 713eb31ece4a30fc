import { AsyncLocalStorage } from "node:async_hooks"
import { shown } from "../client/options.ts"
import type { BackgroundOptions } from "./background-options.ts"
import { joinedFailure, type PublishFailedError } from "./publish-failed.ts"

/** Which call of a callback something is called from, so that a shutdown inside it does not wait for itself. */
const inside = new AsyncLocalStorage<Reported>()

/** So many that were taken are still in the queue at most. */
const longestTail = 1024

interface Reported {
  readonly failure: PublishFailedError
  readonly bytes: number
}

/**
 * Takes the failures of a background producer to `onError`, one at a time, and keeps those that nobody took: without a callback, and
 * when it threw. It knows what its failures hold in memory; to refuse sends above a bound is the producer's business.
 */
export class FailureDesk {
  readonly #onError: BackgroundOptions["onError"]
  #queue: Reported[] = []
  /** Which of the queue is next; those before it were taken. */
  #next = 0
  readonly #kept: PublishFailedError[] = []
  readonly #troubles: unknown[] = []
  #bytes = 0
  #running: Promise<void> | undefined
  /** What the callback has in hand. */
  #current: Reported | undefined
  #free: (() => void) | undefined
  #isFreed = false

  constructor(onError: BackgroundOptions["onError"]) {
    this.#onError = onError
  }

  /** What the failures hold that were not taken yet. */
  get bytes(): number {
    return this.#bytes
  }

  /** @param bytes What its records hold. */
  report(failure: PublishFailedError, bytes: number): void {
    this.#bytes += bytes
    if (this.#onError === undefined) {
      this.#kept.push(failure)
      return
    }
    this.#queue.push({ failure, bytes })
    this.#running ??= this.#run(this.#onError)
  }

  get isBusy(): boolean {
    return this.#running !== undefined
  }

  /** Whether this is asked from inside the callback. */
  get isInside(): boolean {
    return this.#current !== undefined && inside.getStore() === this.#current
  }

  /** Settles when every failure was taken or is kept, or when the callback itself waits for that. */
  finished(): Promise<void> {
    if (this.#running === undefined || this.#isFreed) return Promise.resolve()
    return Promise.race([
      this.#running,
      new Promise<void>((resolve) => {
        this.#free = resolve
      }),
    ])
  }

  /** Called from inside the callback: it is going to wait for what waits for it, and so is not waited for. What is queued is kept. */
  freeCaller(): void {
    if (!this.isInside) return
    this.#isFreed = true
    this.keepQueued()
    this.#free?.()
  }

  /** No callback begins any more. */
  keepQueued(): void {
    for (; this.#next < this.#queue.length; this.#next++) this.#kept.push((this.#queue[this.#next] as Reported).failure)
  }

  /** All that was kept, as one failure. @param isTold Which of it is to be told; default all. */
  takeKept(isTold: (failure: PublishFailedError) => boolean = () => true): PublishFailedError | undefined {
    const kept = this.#kept.splice(0).filter(isTold)
    if (kept.length === 0) return undefined
    const note = this.#troubles.length === 0 ? "" : ` (onError failed: ${messageOf(this.#troubles[0])})`
    return joinedFailure(kept, note)
  }

  async #run(onError: NonNullable<BackgroundOptions["onError"]>): Promise<void> {
    // Out of the sender's turn: what the callback does must not run in the middle of a settlement.
    await Promise.resolve()
    for (let next = this.#take(); next !== undefined; next = this.#take()) {
      const { failure, bytes } = next
      this.#current = next
      try {
        await inside.run(next, () => onError(failure))
        this.#bytes -= bytes
      } catch (thrown) {
        this.#kept.push(failure)
        this.#troubles.push(thrown)
      }
    }
    this.#current = undefined
    this.#running = undefined
  }

  /** The next of the queue. What was taken is let go in pieces: an array whose first member leaves each time is moved each time. */
  #take(): Reported | undefined {
    if (this.#next === this.#queue.length || this.#next >= longestTail) {
      this.#queue = this.#queue.slice(this.#next)
      this.#next = 0
    }
    const next = this.#queue[this.#next]
    if (next !== undefined) this.#next++
    return next
  }
}

function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : shown(thrown)
}
