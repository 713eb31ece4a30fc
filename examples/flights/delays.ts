/** What is computed: the delays of departures, by airport. */

/** The delays of one airport, in whole minutes. */
export interface AirportDelays {
  readonly count: number
  readonly sum: number
  readonly least: number
  readonly greatest: number
  readonly late: number
}

/** A departure counts as late from this delay on, as in the statistics of the US Department of Transportation. */
const lateFromMinutes = 15

/** Delays by airport. Adding in another order, or in parts, gives the same. */
export class DelayTable {
  readonly #airports: Map<string, AirportDelays>

  constructor(airports: Iterable<readonly [airport: string, delays: AirportDelays]> = []) {
    this.#airports = new Map(airports)
  }

  /** Counts one departure. */
  add(airport: string, delay: number): void {
    this.#put(airport, { count: 1, sum: delay, least: delay, greatest: delay, late: delay >= lateFromMinutes ? 1 : 0 })
  }

  /** Counts all that another table has. */
  addAll(other: DelayTable): void {
    for (const [airport, delays] of other.#airports) this.#put(airport, delays)
  }

  /** How many departures were counted. */
  get count(): number {
    return [...this.#airports.values()].reduce((sum, { count }) => sum + count, 0)
  }

  entries(): [airport: string, delays: AirportDelays][] {
    return [...this.#airports]
  }

  /** The airports with the most departures, the busiest first; equal ones in alphabetical order. */
  busiest(limit: number): [airport: string, delays: AirportDelays][] {
    return this.entries()
      .sort(([a, x], [b, y]) => y.count - x.count || (a < b ? -1 : 1))
      .slice(0, limit)
  }

  /** Every figure in which two tables differ, in words; empty when they are equal. */
  differences(expected: DelayTable): string[] {
    const airports = new Set([...expected.#airports.keys(), ...this.#airports.keys()])
    return [...airports].sort().flatMap((airport) => {
      const own = this.#airports.get(airport) ?? nothing
      const wanted = expected.#airports.get(airport) ?? nothing
      return figures
        .filter((figure) => own[figure] !== wanted[figure])
        .map((figure) => `${airport}: ${figure} is ${own[figure]}, but in the file ${wanted[figure]}`)
    })
  }

  #put(airport: string, more: AirportDelays): void {
    const known = this.#airports.get(airport)
    this.#airports.set(airport, known === undefined ? more : join(known, more))
  }
}

const figures = ["count", "sum", "least", "greatest", "late"] as const

const nothing: Record<(typeof figures)[number], number | undefined> = {
  count: 0,
  sum: 0,
  least: undefined,
  greatest: undefined,
  late: 0,
}

function join(a: AirportDelays, b: AirportDelays): AirportDelays {
  return {
    count: a.count + b.count,
    sum: a.sum + b.sum,
    least: Math.min(a.least, b.least),
    greatest: Math.max(a.greatest, b.greatest),
    late: a.late + b.late,
  }
}
