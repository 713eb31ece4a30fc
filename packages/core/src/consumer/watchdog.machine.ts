/**
 * Decides whether a partition of a consumer has fallen silent: it has records behind what was handed out, somebody wants them, and for
 * a while nothing came. Pure: what was seen goes in with its time, verdicts come out.
 *
 *     a partition is   until                                              then
 *     even             an end behind its position is seen                 behind, watched for 0 ms
 *     behind           its position moves, or the end is not behind it    even
 *     behind           it was watched for the patience                    told, and again when that has doubled
 *
 * Only watched time counts: the time between two looks at both of which somebody wanted records, and of a longer gap (the process was
 * stopped, the loop blocked) no more than two intervals. So nobody is accused for time in which nobody looked.
 */

/** One partition as it is at a look. */
export interface PartitionSight {
  /** The same object as long as it is the same claim on the partition. */
  readonly key: object
  /** Behind what was handed out. */
  readonly position: bigint
  /** Where the partition ends; absent when that was not asked, or not answered: then the last that was seen counts. */
  readonly end: bigint | undefined
}

/** A partition that is silent. */
export interface SilentPartition {
  readonly key: object
  readonly position: bigint
  readonly end: bigint
  /** Watched time, in ms. */
  readonly forMs: number
}

interface Watched {
  position: bigint
  end: bigint
  behind: boolean
  watchedMs: number
  tellAtMs: number
}

/** Looks while records come are `patience / 2` apart; when all is quiet they become rarer, up to this many patiences. */
const quietPatiences = 2

export class WatchdogMachine {
  readonly #patienceMs: number
  #partitions = new Map<object, Watched>()
  /** The last look, when somebody wanted records at it. */
  #sinceMs: number | undefined
  #intervalMs: number

  /** @param patienceMs For how long a partition may be silent. */
  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs
    this.#intervalMs = patienceMs / 2
  }

  /** When to look again, in ms from the last look. */
  get intervalMs(): number {
    return this.#intervalMs
  }

  /** How far it was at the last look, to know of which partitions the end is worth a question; absent for one not seen yet. */
  positionOf(key: object): bigint | undefined {
    return this.#partitions.get(key)?.position
  }

  /** Whether it was seen to have records that did not come. */
  isBehind(key: object): boolean {
    return this.#partitions.get(key)?.behind ?? false
  }

  /**
   * @param sight.wanted Whether a caller waits, or has taken something since the last look.
   * @param sight.partitions Those that could give something: neither paused nor held, nor with records read ahead that a caller has
   *   only to take. The others are forgotten.
   * @returns those that are to be told of now.
   */
  look(sight: {
    readonly atMs: number
    readonly wanted: boolean
    readonly partitions: readonly PartitionSight[]
  }): readonly SilentPartition[] {
    const { atMs, wanted, partitions } = sight
    const gapMs = this.#sinceMs === undefined ? 0 : Math.min(Math.max(0, atMs - this.#sinceMs), this.#longestGapMs)
    this.#sinceMs = wanted ? atMs : undefined
    const before = this.#partitions
    this.#partitions = new Map()
    const silent: SilentPartition[] = []
    let quiet = true
    for (const seen of partitions) {
      const one = this.#watched(before.get(seen.key), seen, wanted ? gapMs : 0)
      this.#partitions.set(seen.key, one)
      if (one.behind || before.get(seen.key)?.position !== seen.position) quiet = false
      if (!one.behind || one.watchedMs < one.tellAtMs) continue
      one.tellAtMs = one.watchedMs * 2
      silent.push({ key: seen.key, position: one.position, end: one.end, forMs: one.watchedMs })
    }
    const shortest = this.#patienceMs / 2
    this.#intervalMs = quiet ? Math.min(this.#intervalMs * 2, this.#patienceMs * quietPatiences) : shortest
    return silent
  }

  #watched(before: Watched | undefined, { position, end }: PartitionSight, gapMs: number): Watched {
    const patienceMs = this.#patienceMs
    if (before === undefined || before.position !== position) {
      const known = end ?? before?.end ?? position
      return { position, end: known, behind: known > position, watchedMs: 0, tellAtMs: patienceMs }
    }
    const known = end ?? before.end
    if (known <= position) return { position, end: known, behind: false, watchedMs: 0, tellAtMs: patienceMs }
    if (!before.behind) return { position, end: known, behind: true, watchedMs: 0, tellAtMs: patienceMs }
    return { ...before, end: known, watchedMs: before.watchedMs + gapMs }
  }

  get #longestGapMs(): number {
    return this.#intervalMs * 2
  }
}
