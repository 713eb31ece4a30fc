import { MillraceError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { RecordDecoder } from "../typed/record-decoder.ts"
import type { ValuedMessage } from "./valued-message.ts"

/** How long it waits before it asks a codec again whose failure may pass, in ms. */
const retryMs = 1000

/** Asks codecs that have something to fetch before they decode (`Codec.prepare`), as schemas. */
export class QueuePreparing {
  readonly #decoder: RecordDecoder
  readonly #clock: Clock
  readonly #abort = new AbortController()
  readonly #waits = new Set<() => void>()

  constructor(decoder: RecordDecoder, clock: Clock) {
    this.#decoder = decoder
    this.#clock = clock
  }

  /**
   * Settles when the messages can be decoded; `undefined` when they can be now, which is the usual case. What may pass is tried again.
   * @throws what will not pass, and anything behind the end
   */
  prepare(messages: readonly ValuedMessage[]): Promise<void> | undefined {
    const first = this.#ask(messages)
    return first === undefined ? undefined : this.#until(messages, first)
  }

  /** Nothing is asked any more. */
  end(): void {
    this.#abort.abort()
    for (const wake of [...this.#waits]) wake()
  }

  /** What the codec throws counts as its rejection. */
  #ask(messages: readonly ValuedMessage[]): Promise<void> | undefined {
    try {
      return this.#decoder.codec.prepare?.(messages.filter(decrypts), { signal: this.#abort.signal })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async #until(messages: readonly ValuedMessage[], first: Promise<void>): Promise<void> {
    for (let asked: Promise<void> | undefined = first; ; asked = this.#ask(messages)) {
      try {
        await asked
        return
      } catch (error) {
        const passing = error instanceof MillraceError && error.retryable
        if (!passing || this.#abort.signal.aborted) throw error
        await this.#wait()
        if (this.#abort.signal.aborted) throw error
      }
    }
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel()
        this.#waits.delete(end)
        resolve()
      }
      const timer = this.#clock.setTimer(retryMs, end)
      this.#waits.add(end)
    })
  }
}

/** What does not decrypt is told in its place. */
function decrypts(message: ValuedMessage): boolean {
  try {
    message.decrypt()
    return true
  } catch {
    return false
  }
}
