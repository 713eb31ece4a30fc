/** What must hold of a log after a crash, checked over all that was confirmed and all that is there. Pure: a list of problems. */
import { isOrdered, type LanePlace } from "./lane.ts"

/** A confirmation that reached the parent. */
export interface Confirmed extends LanePlace {
  readonly partition: number
  readonly offset: bigint
}

/** A record as it is in the log. */
export interface Stored extends LanePlace {
  readonly partition: number
  readonly offset: bigint
}

/** At most so many problems are listed: the first ones tell. */
const mostProblems = 20

/**
 * - Offsets of a partition have no gap.
 * - Every confirmed record is at its offset.
 * - No record is there twice.
 * - A lane is there as sent: in order, from 0, without a gap. (Lanes that promise less: in order in each partition.)
 */
export function checkLog(confirmed: Iterable<Confirmed>, log: Iterable<Stored>): string[] {
  const problems: string[] = []
  const byPlace = new Map<string, Stored>()
  const ends = new Map<number, bigint>()
  const seen = new Set<string>()
  const lanes = new Map<string, { partition: number; next: number }>()

  for (const record of log) {
    const place = `${record.partition}/${record.offset}`
    byPlace.set(place, record)
    const end = ends.get(record.partition) ?? 0n
    if (record.offset !== end) problems.push(`${place} follows offset ${end - 1n} in its partition`)
    ends.set(record.partition, record.offset + 1n)

    const name = `${record.lane}:${record.counter}`
    if (seen.has(name)) problems.push(`${name} is there twice, the second time at ${place}`)
    seen.add(name)

    const ordered = isOrdered(record.lane)
    const key = ordered ? record.lane : `${record.lane}@${record.partition}`
    const lane = lanes.get(key) ?? { partition: record.partition, next: 0 }
    if (lane.partition !== record.partition)
      problems.push(`${name} is at ${place}, its lane in partition ${lane.partition}`)
    if (ordered ? record.counter !== lane.next : record.counter < lane.next) {
      problems.push(`${name} is at ${place} where ${record.lane}:${lane.next} is due`)
    }
    lanes.set(key, { partition: record.partition, next: record.counter + 1 })
  }

  for (const { lane, counter, partition, offset } of confirmed) {
    const found = byPlace.get(`${partition}/${offset}`)
    if (found === undefined)
      problems.push(`${lane}:${counter} was confirmed at ${partition}/${offset}, where nothing is`)
    else if (found.lane !== lane || found.counter !== counter) {
      problems.push(
        `${lane}:${counter} was confirmed at ${partition}/${offset}, where ${found.lane}:${found.counter} is`,
      )
    }
  }
  return problems.slice(0, mostProblems)
}
