/** One loop over the changes of small state. */
import { CancelledError, ClosedError } from "@millrace/contract"
import type { Channel } from "./channel.ts"
import type { StateChange, WatchState } from "./engine/state.ts"

/** The engine answers after so long without a change, and is asked again. */
const watchWaitMs = 60_000

/** What a watch is made of. */
export interface StateWatchParts {
  readonly channel: Channel
  /** The session's own number of this watch. */
  readonly watch: number
  readonly prefix: string
  readonly ended: (watch: StateWatch) => void
}

/** Calls of `next` are answered in turn; `return` ends one that waits. */
export class StateWatch implements AsyncIterator<StateChange, undefined> {
  readonly #parts: StateWatchParts
  readonly #abort = new AbortController()
  #told: StateChange[] = []
  #last: Promise<unknown> = Promise.resolve()

  constructor(parts: StateWatchParts) {
    this.#parts = parts
  }

  next(): Promise<IteratorResult<StateChange, undefined>> {
    const result = this.#last.then(() => this.#next())
    // Whoever called gets the failure; the next call asks anew.
    this.#last = result.catch(() => undefined)
    return result
  }

  async return(): Promise<IteratorResult<StateChange, undefined>> {
    if (!this.#abort.signal.aborted) {
      this.end()
      const { channel, watch } = this.#parts
      await channel.call("state.unwatch", watch).catch(unlessClosed)
    }
    return { value: undefined, done: true }
  }

  /** Ends it from this side, as its session does. */
  end(): void {
    this.#abort.abort()
    this.#told = []
    this.#parts.ended(this)
  }

  async #next(): Promise<IteratorResult<StateChange, undefined>> {
    const { channel, watch, prefix } = this.#parts
    const { signal } = this.#abort
    const args: WatchState = { watch, prefix, maxWaitMs: watchWaitMs }
    while (!signal.aborted) {
      const change = this.#told.shift()
      if (change !== undefined) return { value: change, done: false }
      try {
        this.#told = await channel.call<StateChange[]>("state.watch", args, { signal })
      } catch (error) {
        if (!signal.aborted || !(error instanceof CancelledError || error instanceof ClosedError)) throw error
      }
    }
    return { value: undefined, done: true }
  }
}

function unlessClosed(error: unknown): void {
  if (!(error instanceof ClosedError)) throw error
}
