import type { History } from "../backend/sim-topic.ts"

/**
 * Which records of one history somebody of an owner has handled, or need not handle: told as skipped, before the start, or passed over by
 * the program's own will.
 */
export class Ledger {
  readonly history: History
  readonly #handled = new Set<number>()
  /** Handled or waived, beyond the prefix. */
  readonly #done = new Set<number>()
  #prefix = 0

  constructor(history: History) {
    this.history = history
  }

  handled(offset: number): void {
    this.#handled.add(offset)
    if (offset >= this.#prefix) this.#done.add(offset)
  }

  /** Nobody has to handle `from` to `to` − 1. */
  waive(from: number, to: number): void {
    if (from <= this.#prefix) {
      this.#prefix = Math.max(this.#prefix, to)
      return
    }
    for (let offset = from; offset < to; offset++) this.#done.add(offset)
  }

  /** Whether somebody has handled it. */
  isHandled(offset: number): boolean {
    return this.#handled.has(offset)
  }

  /** Whether it is handled, or need not be. */
  isDone(offset: number): boolean {
    return offset < this.prefix || this.#done.has(offset)
  }

  /** Everything before it is handled, or needs no handling. */
  get prefix(): number {
    const { records, hidden } = this.history.log
    while (this.#done.has(this.#prefix) || (this.#prefix < records.length && hidden.has(this.#prefix))) {
      this.#done.delete(this.#prefix)
      this.#prefix++
    }
    return this.#prefix
  }
}
