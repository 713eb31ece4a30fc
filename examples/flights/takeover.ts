import type { WorkerProcess } from "./worker-process.ts"

/** How a takeover went, in ms from the kill; `undefined` for what never came. */
export interface TakeoverTimes {
  /** Those of the killed worker. */
  readonly partitions: readonly number[]
  /** Until another worker had them all. */
  readonly assignedMs: number | undefined
  /** Until the first flight of one of them was delivered. */
  readonly deliveredMs: number | undefined
}

/** Watches how long it takes until every partition of a killed worker delivers to another one again. */
export class Takeover {
  readonly #orphaned: Set<number>
  readonly #victim: WorkerProcess
  readonly #killedAt = performance.now()
  #assignedMs: number | undefined
  #deliveredMs: number | undefined

  /** The worker was killed just now. */
  constructor(victim: WorkerProcess, partitions: Iterable<number>) {
    this.#victim = victim
    this.#orphaned = new Set(partitions)
  }

  /** The partitions that lost their worker. */
  get partitions(): readonly number[] {
    return [...this.#orphaned].sort()
  }

  /** Another worker has them all. */
  assigned(worker: WorkerProcess): void {
    if (worker === this.#victim || this.#assignedMs !== undefined) return
    if (!this.partitions.every((partition) => worker.partitions.has(partition))) return
    this.#assignedMs = performance.now() - this.#killedAt
  }

  /** A flight of a partition was delivered. */
  delivered(worker: WorkerProcess, partition: number): void {
    if (worker === this.#victim || !this.#orphaned.has(partition)) return
    this.#deliveredMs ??= performance.now() - this.#killedAt
  }

  /** How long it took from the kill to the assignment, and to the first flight. */
  get times(): TakeoverTimes {
    return { partitions: this.partitions, assignedMs: this.#assignedMs, deliveredMs: this.#deliveredMs }
  }
}
