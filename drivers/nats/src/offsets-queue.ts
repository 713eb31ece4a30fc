/** Work on one key in the order in which it was asked for, on different keys at the same time. */
export class OffsetsQueue {
  readonly #last = new Map<string, Promise<unknown>>()

  /** Runs the work when all that was asked for before it under this key has ended, well or not. */
  run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key)
    const result = before === undefined ? work() : before.then(work, work)
    this.#last.set(key, result)
    const done = (): void => {
      if (this.#last.get(key) === result) this.#last.delete(key)
    }
    result.then(done, done)
    return result
  }
}
