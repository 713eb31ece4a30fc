import type { Lineage } from "@millrace/contract"
import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"

/**
 * Offsets that were processed, by partition, as intervals (the seed's `IntervalTree`): what lies without gaps takes the room of one
 * interval. It holds at most 10,000 intervals a partition: beyond that the lowest are forgotten, so that what they covered would be
 * processed again; an offset that was not marked never counts as processed.
 */
export interface IntervalSet {
  /** Partitions with a mark, in ascending order. */
  readonly partitions: readonly number[]
  /** @returns whether it was not marked before @throws InvalidError for what is no partition or offset */
  markProcessed(partition: number, offset: bigint): boolean
  alreadyProcessed(partition: number, offset: bigint): boolean
  /** The lowest offset that is marked; absent when none is. */
  min(partition: number): bigint | undefined
  /** The highest. */
  max(partition: number): bigint | undefined
  /** What is not marked between the lowest and the highest mark, in order; `to` is the first offset behind the gap. */
  gaps(partition: number): { readonly from: bigint; readonly to: bigint }[]
}

/** Intervals of one partition. */
const mostIntervals = 10_000
/** How many are forgotten at once: taking them out one by one would move all the others each time. */
const forgottenAtOnce = 100

/** The marks of one partition in one history. Sorted; no interval touches another. */
interface Marks {
  lineage: Lineage | undefined
  from: bigint[]
  /** The first offset behind each. */
  to: bigint[]
}

/** The window of one queue consumer. Marks of a history that is over (a purge begins offsets anew) go with it. */
export class DedupeWindow implements IntervalSet {
  readonly #marks = new Map<number, Marks>()
  readonly #mostIntervals: number

  /** @param most Intervals a partition; for tests. */
  constructor(most: number = mostIntervals) {
    this.#mostIntervals = most
  }

  get partitions(): readonly number[] {
    return [...this.#marks]
      .filter(([, { to }]) => to.length > 0)
      .map(([partition]) => partition)
      .sort((a, b) => a - b)
  }

  markProcessed(partition: number, offset: bigint): boolean {
    return this.mark(checked(partition, offset), offset)
  }

  alreadyProcessed(partition: number, offset: bigint): boolean {
    return this.has(checked(partition, offset), offset)
  }

  min(partition: number): bigint | undefined {
    return this.#marks.get(partition)?.from[0]
  }

  max(partition: number): bigint | undefined {
    const end = this.#marks.get(partition)?.to.at(-1)
    return end === undefined ? undefined : end - 1n
  }

  gaps(partition: number): { readonly from: bigint; readonly to: bigint }[] {
    const { from, to } = this.#marks.get(partition) ?? { from: [], to: [] }
    return from.slice(1).map((next, i) => ({ from: to[i] as bigint, to: next }))
  }

  /** The same without checks. @param lineage Of the message; absent: whichever the partition has. */
  mark(partition: number, offset: bigint, lineage?: Lineage): boolean {
    const marks = this.#of(partition, lineage)
    const { from, to } = marks
    const last = to.length - 1
    // In order, as most come.
    if (last >= 0 && to[last] === offset) {
      to[last] = offset + 1n
      return true
    }
    const index = firstTouching(to, offset)
    const start = from[index]
    if (start === undefined || start > offset + 1n) {
      from.splice(index, 0, offset)
      to.splice(index, 0, offset + 1n)
      if (to.length > this.#mostIntervals) this.#forget(marks)
      return true
    }
    const end = to[index] as bigint
    if (start <= offset && offset < end) return false
    if (start === offset + 1n) {
      from[index] = offset
      return true
    }
    // It stands right behind this interval, and may close the gap to the next.
    if (from[index + 1] === offset + 1n) {
      to.splice(index, 1)
      from.splice(index + 1, 1)
    } else {
      to[index] = offset + 1n
    }
    return true
  }

  has(partition: number, offset: bigint, lineage?: Lineage): boolean {
    const marks = this.#marks.get(partition)
    if (marks === undefined || (lineage !== undefined && marks.lineage !== undefined && marks.lineage !== lineage)) {
      return false
    }
    const { from, to } = marks
    const end = to[to.length - 1]
    if (end === undefined || offset >= end) return false
    const index = firstTouching(to, offset + 1n)
    return (from[index] as bigint) <= offset
  }

  #of(partition: number, lineage: Lineage | undefined): Marks {
    let marks = this.#marks.get(partition)
    if (marks === undefined) {
      marks = { lineage, from: [], to: [] }
      this.#marks.set(partition, marks)
    } else if (lineage !== undefined && marks.lineage !== lineage) {
      if (marks.lineage !== undefined) {
        marks.from = []
        marks.to = []
      }
      marks.lineage = lineage
    }
    return marks
  }

  #forget({ from, to }: Marks): void {
    const count = Math.min(forgottenAtOnce, Math.ceil(this.#mostIntervals / 2))
    from.splice(0, count)
    to.splice(0, count)
  }
}

/** The first interval that ends at or behind the offset. */
function firstTouching(to: readonly bigint[], offset: bigint): number {
  let low = 0
  let high = to.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((to[middle] as bigint) < offset) low = middle + 1
    else high = middle
  }
  return low
}

function checked(partition: number, offset: bigint): number {
  if (!Number.isInteger(partition) || partition < 0) {
    throw new InvalidError(`partition ${shown(partition)} must be a whole number from 0`)
  }
  if (typeof offset !== "bigint" || offset < 0n)
    throw new InvalidError(`offset ${shown(offset)} is not a bigint from 0`)
  return partition
}
