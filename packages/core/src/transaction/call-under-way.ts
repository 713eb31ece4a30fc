/** The call to the backend that is under way; one comes after the other. */
export class CallUnderWay {
  /** Never rejects. */
  #last: Promise<void> | undefined

  get busy(): boolean {
    return this.#last !== undefined
  }

  /** @returns the same call, which is now the one that is under way */
  track<T>(call: Promise<T>): Promise<T> {
    const over = (): void => {
      if (this.#last === last) this.#last = undefined
    }
    const last = call.then(over, over)
    this.#last = last
    return call
  }

  /** Settles when none was under way, also none that was begun meanwhile; another one may have begun since. Never rejects. */
  async idle(): Promise<void> {
    while (this.#last !== undefined) await this.#last
  }
}
