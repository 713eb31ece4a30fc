/** What never changes once it is there, asked for once however many ask at the same time. Failures are not kept. */
export class SchemaCache<K, V> {
  readonly #size: number
  /** The one that was used last is the last. */
  readonly #kept = new Map<K, Promise<V>>()

  /** @param size From 1. How many values are kept; those that were not used for longest go. */
  constructor(size: number) {
    this.#size = size
  }

  async get(key: K, ask: () => Promise<V>): Promise<V> {
    const kept = this.#kept.get(key)
    const answer = kept ?? ask()
    this.#kept.delete(key)
    this.#kept.set(key, answer)
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= this.#size) break
      this.#kept.delete(oldest)
    }
    try {
      return await answer
    } catch (error) {
      if (this.#kept.get(key) === answer) this.#kept.delete(key)
      throw error
    }
  }
}
