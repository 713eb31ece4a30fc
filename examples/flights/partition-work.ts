import { DelayTable } from "./delays.ts"
import type { Flight } from "./flights.ts"
import type { Snapshot } from "./snapshot.ts"

/** The work on one partition: the flights counted so far, starting from the newest snapshot. */
export class PartitionWork {
  readonly #partition: number
  readonly #table: DelayTable
  #upTo: bigint
  #unsaved = 0

  /** @param newest The partition's newest snapshot; none: nothing was counted yet. */
  constructor(partition: number, newest: Snapshot | undefined) {
    this.#partition = partition
    this.#table = new DelayTable(newest?.table.entries())
    this.#upTo = newest?.upTo ?? -1n
  }

  /** How many flights are counted here but in no snapshot yet. */
  get unsaved(): number {
    return this.#unsaved
  }

  /**
   * Counts a flight, unless it was counted before; answers which.
   * @throws Error when flights between the last one and this are missing: the result would be wrong, so there must be none
   */
  count(offset: bigint, flight: Flight): "counted" | "repeated" {
    if (offset <= this.#upTo) return "repeated"
    if (offset !== this.#upTo + 1n) {
      throw new Error(
        `partition ${this.#partition}: the flight at offset ${offset} follows the one at ${this.#upTo}: those between are missing`,
      )
    }
    this.#table.add(flight.origin, flight.delay)
    this.#upTo = offset
    this.#unsaved++
    return "counted"
  }

  /** All that is counted, to be stored. */
  snapshot(): Snapshot {
    this.#unsaved = 0
    return { partition: this.#partition, upTo: this.#upTo, table: this.#table }
  }
}
