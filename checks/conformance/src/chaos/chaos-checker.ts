/** What must hold of a topic after chaos, over all that was confirmed and all that a foreign client found. Pure: a list of problems. */
import type { LanePlace } from "../crash/lane.ts"

/** A record whose confirmation reached the sender, with its offset where the backend tells. */
export interface ConfirmedRecord extends LanePlace {
  readonly partition?: number
  readonly offset?: bigint
}

/** A record as a foreign client read it. */
export interface FoundRecord extends LanePlace {
  readonly partition: number
  readonly offset: bigint
  /** The key, as text. Lanes are sent with their name as key. */
  readonly key: string
}

/** What the backend promises of a record that was sent again. */
export interface ChaosPromises {
  /** Nothing is stored twice. */
  readonly once: boolean
}

/** At most so many problems are listed: the first ones tell. */
const mostProblems = 20

/**
 * - Every confirmed record is there, at the offset that was told.
 * - A lane lies in one partition, and the first occurrences of its records are in the order of the sends.
 * - Nothing is there twice, where that is promised.
 * - Offsets of a partition go up.
 * @param found In the order of the offsets of each partition.
 */
export function checkChaos(
  confirmed: Iterable<ConfirmedRecord>,
  found: Iterable<FoundRecord>,
  { once }: ChaosPromises,
): string[] {
  const problems: string[] = []
  const places = new Map<string, Set<string>>()
  const ends = new Map<number, bigint>()
  const lanes = new Map<string, { readonly partition: number; last: number }>()
  for (const { lane, counter, partition, offset, key } of found) {
    const place = `${partition}/${offset}`
    const name = `${lane}:${counter}`
    const end = ends.get(partition) ?? 0n
    if (offset < end) problems.push(`${place} comes behind offset ${end - 1n} of its partition`)
    ends.set(partition, offset + 1n)
    if (key !== lane) problems.push(`${name} at ${place} has the key ${JSON.stringify(key)}`)
    const known = lanes.get(lane)
    if (known !== undefined && known.partition !== partition) {
      problems.push(`${name} is at ${place}, its lane in partition ${known.partition}`)
    }
    const before = places.get(name)
    if (before !== undefined) {
      before.add(place)
      if (once) problems.push(`${name} is there twice: at ${[...before].join(" and ")}`)
      continue
    }
    places.set(name, new Set([place]))
    if (known === undefined) lanes.set(lane, { partition, last: counter })
    else {
      if (counter < known.last) problems.push(`${name} is at ${place} behind ${lane}:${known.last}`)
      known.last = Math.max(known.last, counter)
    }
  }
  for (const { lane, counter, partition, offset } of confirmed) {
    const name = `${lane}:${counter}`
    const at = places.get(name)
    if (at === undefined) problems.push(`${name} was confirmed and is not there`)
    else if (offset !== undefined && !at.has(`${partition}/${offset}`)) {
      problems.push(`${name} was confirmed at ${partition}/${offset} and is at ${[...at].join(" and ")}`)
    }
  }
  return problems.slice(0, mostProblems)
}
