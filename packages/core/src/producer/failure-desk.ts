import { AsyncLocalStorage } from "node:async_hooks"
import { shown } from "../client/options.ts"
import type { BackgroundOptions } from "./background-options.ts"
import { joinedFailure, type PublishFailedError } from "./publish-failed.ts"

/** Which desk a callback is called from, so that a shutdown inside it does not wait for itself. */
const inside = new AsyncLocalStorage<FailureDesk>()

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
  readonly #queue: Reported[] = []
  readonly #kept: PublishFailedError[] = []
  readonly #troubles: unknown[] = []
  #bytes = 0
  #running: Promise<void> | undefined
  #free: (() => void) | undefined
  #isFreed = false

  constructor(onError: BackgroundOptions["onError"]) {
    this.#onError = onError
  }

  /** What the failures hold that were not taken yet. */
  get bytes(): number {
    return this.#bytes
  }

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
    if (inside.getStore() !== this) return
    this.#isFreed = true
    this.keepQueued()
    this.#free?.()
  }

  /** No callback begins any more. */
  keepQueued(): void {
    for (const { failure } of this.#queue.splice(0)) this.#kept.push(failure)
  }

  /** All that was kept, as one failure. */
  takeKept(): PublishFailedError | undefined {
    if (this.#kept.length === 0) return undefined
    const note = this.#troubles.length === 0 ? "" : ` (onError failed: ${messageOf(this.#troubles[0])})`
    return joinedFailure(this.#kept.splice(0), note)
  }

  async #run(onError: NonNullable<BackgroundOptions["onError"]>): Promise<void> {
    // Out of the sender's turn: what the callback does must not run in the middle of a settlement.
    await Promise.resolve()
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      const { failure, bytes } = next
      try {
        await inside.run(this, () => onError(failure))
        this.#bytes -= bytes
      } catch (thrown) {
        this.#kept.push(failure)
        this.#troubles.push(thrown)
      }
    }
    this.#running = undefined
  }
}

function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : shown(thrown)
}
