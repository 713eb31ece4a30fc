import type { ConnectionChange } from "@millrace/contract"

/**
 * Passes on what a driver tells of its connections to those who want to know: made before the session, since the driver is told at
 * `connect` where to report.
 */
export class ConnectionWatch {
  readonly #listeners = new Set<(change: ConnectionChange) => void>()

  /** For `SessionOptions.onConnection`. */
  readonly notify = (change: ConnectionChange): void => {
    for (const listener of [...this.#listeners]) listener(change)
  }

  /** The answer forgets the listener again. A listener must not throw. */
  listen(listener: (change: ConnectionChange) => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }
}
