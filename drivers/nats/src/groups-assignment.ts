/**
 * Which member of a group should have which partition. Pure, and the same for every member that works it out: only the record counts,
 * not who looks at it.
 *
 * - Complete: a partition has no member only when nobody reads its topic.
 * - Even: members that read the same topics differ by at most one partition.
 * - Sticky: a partition stays unless its member is gone, or giving it away makes two members more even.
 */
import type { GroupMember } from "./groups-record.ts"

/** A partition with the member that has it, or is to get it; absent when it is free. */
export interface Seat {
  readonly topic: number
  readonly partition: number
  readonly member: number | undefined
}

/** The assignment that is to be reached, one answer a seat, in the order of the seats. */
export function assign(members: readonly GroupMember[], seats: readonly Seat[]): Seat[] {
  const places = members.map(({ number, topics }): Place => ({ number, topics: new Set(topics), count: 0 }))
  places.sort((one, other) => one.number - other.number)
  const byNumber = new Map(places.map((place) => [place.number, place]))
  const takers = new Map<number, Place[]>()
  for (const { topic } of seats) {
    if (!takers.has(topic)) {
      takers.set(
        topic,
        places.filter((place) => place.topics.has(topic)),
      )
    }
  }
  const holders = seats.map(({ topic, member }) => {
    const holder = member === undefined ? undefined : byNumber.get(member)
    return holder?.topics.has(topic) ? holder : undefined
  })
  for (const holder of holders) if (holder !== undefined) holder.count++

  for (const index of freeSeats(seats, { holders, takers })) {
    const least = lightest(takers.get((seats[index] as Seat).topic) ?? [])
    if (least === undefined) continue
    holders[index] = least
    least.count++
  }
  evenOut(seats, { holders, takers })
  return seats.map((seat, index) => ({ ...seat, member: holders[index]?.number }))
}

/** A member while the assignment is worked out. */
interface Place {
  readonly number: number
  readonly topics: ReadonlySet<number>
  count: number
}

interface Draft {
  readonly holders: (Place | undefined)[]
  readonly takers: ReadonlyMap<number, readonly Place[]>
}

/** Those without a holder; topics with the fewest readers come first, since they have the least choice. */
function freeSeats(seats: readonly Seat[], { holders, takers }: Draft): number[] {
  const choice = (index: number): number => takers.get((seats[index] as Seat).topic)?.length ?? 0
  const free = [...seats.keys()].filter((index) => holders[index] === undefined)
  return free.sort((one, other) => choice(one) - choice(other) || one - other)
}

/**
 * Moves single partitions to members with at least two fewer, from the widest gap on: a member that is not above its even share never
 * gives one away and then gets another. Each move lowers the sum of the squared counts, so this ends.
 */
function evenOut(seats: readonly Seat[], { holders, takers }: Draft): void {
  for (;;) {
    const least = new Map([...takers].map(([topic, places]) => [topic, lightest(places)]))
    let from = -1
    let widest = 1
    for (let index = seats.length - 1; index >= 0; index--) {
      const taker = least.get((seats[index] as Seat).topic)
      const holder = holders[index]
      if (holder === undefined || taker === undefined || holder.count - taker.count <= widest) continue
      widest = holder.count - taker.count
      from = index
    }
    const holder = holders[from]
    const taker = least.get(seats[from]?.topic as number)
    if (holder === undefined || taker === undefined) return
    holder.count--
    taker.count++
    holders[from] = taker
  }
}

/** The member with the fewest partitions; of equals the oldest. */
function lightest(places: readonly Place[]): Place | undefined {
  let least: Place | undefined
  for (const place of places) if (least === undefined || place.count < least.count) least = place
  return least
}
