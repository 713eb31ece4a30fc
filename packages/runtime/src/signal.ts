/** Wakes everybody who waits for a change of some state. A wake that nobody waits for is not kept: look at the state before waiting. */
export class Signal {
  #waiting: (() => void)[] = []

  /** Resolves at the next `wake`. */
  next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  wake(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const resolve of waiting) resolve()
  }
}
