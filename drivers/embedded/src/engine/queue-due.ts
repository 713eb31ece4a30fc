/** When leases are over, the first one first. */

/** A lease, and when it is over on the engine's monotonic clock. */
export interface Due {
  readonly lease: number
  readonly dueMs: number
}

/** A binary heap of leases. Those that are over long before their time stay until then, or until `keep`. */
export class QueueDue {
  #heap: Due[] = []

  get size(): number {
    return this.#heap.length
  }

  /** When the first one is over; infinite without one. */
  get nextMs(): number {
    return this.#heap[0]?.dueMs ?? Number.POSITIVE_INFINITY
  }

  push(due: Due): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(due)
    while (at > 0) {
      const parent = (at - 1) >> 1
      const above = heap[parent] as Due
      if (!isBefore(due, above)) break
      heap[at] = above
      at = parent
    }
    heap[at] = due
  }

  /** Takes the first one that is over by now, of several that are over at once the oldest. */
  pop(nowMs: number): Due | undefined {
    const heap = this.#heap
    const first = heap[0]
    if (first === undefined || first.dueMs > nowMs) return undefined
    const last = heap.pop() as Due
    if (heap.length > 0) this.#sink(last)
    return first
  }

  /** The leases that are over by now. */
  over(nowMs: number): Set<number> {
    return new Set(this.#heap.filter(({ dueMs }) => dueMs <= nowMs).map(({ lease }) => lease))
  }

  /** Forgets all leases but these. */
  keep(leases: { has(lease: number): boolean }): void {
    const kept = this.#heap.filter(({ lease }) => leases.has(lease))
    // A sorted list is a heap.
    this.#heap = kept.sort((a, b) => (isBefore(a, b) ? -1 : 1))
  }

  #sink(due: Due): void {
    const heap = this.#heap
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Due, heap[child] as Due)) child += 1
      const below = heap[child] as Due
      if (!isBefore(below, due)) break
      heap[at] = below
      at = child
    }
    heap[at] = due
  }
}

function isBefore(a: Due, b: Due): boolean {
  return a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.lease < b.lease)
}
