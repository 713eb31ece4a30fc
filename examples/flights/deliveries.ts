/** Counts which flights came, and how often. */
export class Deliveries {
  readonly #times = new Map<number, number[]>()
  #distinct = 0

  /** Flights of a partition below an offset that earlier runs have handled. */
  startAt(partition: number, offset: bigint): void {
    this.#times.set(partition, new Array<number>(Number(offset)).fill(1))
  }

  /** Counts one delivery; answers whether it was the first. */
  add(partition: number, offset: bigint): boolean {
    const times = this.#times.get(partition) ?? []
    this.#times.set(partition, times)
    const before = times[Number(offset)] ?? 0
    times[Number(offset)] = before + 1
    if (before === 0) this.#distinct++
    return before === 0
  }

  /** Whether it came. */
  has(partition: number, offset: bigint): boolean {
    return (this.#times.get(partition)?.[Number(offset)] ?? 0) > 0
  }

  /** How many different flights were added. */
  get distinct(): number {
    return this.#distinct
  }

  /** How many flights came more than once. */
  get repeated(): number {
    return [...this.#times.values()].reduce((sum, times) => sum + times.filter((count) => count > 1).length, 0)
  }
}
