/**
 * Which member of a group should own which partition. Pure: the same members, partitions and present owners give the same answer,
 * in whatever order they are listed.
 *
 * - Balanced: members that subscribe to the same topics differ by at most one partition.
 * - Sticky: a partition stays where it is unless its member is gone or moving it makes the group more even. Where all members
 *   subscribe to the same topics, no balanced assignment moves fewer.
 * - Complete: a partition is left out only when nobody subscribes to its topic.
 */

/** A member as the assignment sees it. `topics` are the ids of the topics that it subscribes to. */
export interface Candidate {
  readonly id: number
  readonly topics: ReadonlySet<number>
}

/** A partition and the member that has it now, or is about to get it; absent when it is free. */
export interface OwnedPartition {
  readonly topic: number
  readonly partition: number
  readonly owner?: number
}

/** A partition and the member that should have it; absent when nobody subscribes to the topic. */
export interface AssignedPartition {
  readonly topic: number
  readonly partition: number
  readonly member?: number
}

/**
 * The target assignment, one answer a partition, in the order of topic and partition.
 * @param candidates Each id once.
 * @param partitions Each partition once. An owner that is no candidate, or does not subscribe, counts as none.
 */
export function assign(
  candidates: readonly Candidate[],
  partitions: readonly OwnedPartition[],
): readonly AssignedPartition[] {
  const loads = candidates
    .map((candidate): Load => ({ id: candidate.id, topics: candidate.topics, seats: [] }))
    .sort((a, b) => a.id - b.id)
  const byId = new Map(loads.map((load) => [load.id, load]))
  const seats = partitions
    .map(({ topic, partition, owner }): Seat => {
      const present = owner === undefined ? undefined : byId.get(owner)
      return { topic, partition, load: present?.topics.has(topic) ? present : undefined }
    })
    .sort((a, b) => a.topic - b.topic || a.partition - b.partition)
  for (const seat of seats) seat.load?.seats.push(seat)

  seatTheFree(loads, seats)
  while (evenOut(loads)) {
    // Each step lowers the sum of the squared loads, so this ends.
  }
  return seats.map(({ topic, partition, load }) => ({
    topic,
    partition,
    ...(load === undefined ? {} : { member: load.id }),
  }))
}

/** A member while the assignment is worked out. `seats` is in no particular order. */
interface Load {
  readonly id: number
  readonly topics: ReadonlySet<number>
  readonly seats: Seat[]
}

/** A partition while the assignment is worked out. */
interface Seat {
  readonly topic: number
  readonly partition: number
  load: Load | undefined
}

/** Gives each free partition to the least loaded member that may have it; topics with the fewest subscribers choose first. */
function seatTheFree(loads: readonly Load[], seats: readonly Seat[]): void {
  const subscribers = new Map<number, readonly Load[]>()
  const of = (topic: number): readonly Load[] => {
    let list = subscribers.get(topic)
    if (list === undefined) {
      list = loads.filter((load) => load.topics.has(topic))
      subscribers.set(topic, list)
    }
    return list
  }
  const free = seats.filter((seat) => seat.load === undefined)
  free.sort((a, b) => of(a.topic).length - of(b.topic).length || a.topic - b.topic || a.partition - b.partition)
  for (const seat of free) {
    const least = of(seat.topic).reduce<Load | undefined>(
      (best, load) => (best === undefined || load.seats.length < best.seats.length ? load : best),
      undefined,
    )
    if (least !== undefined) sit(seat, least)
  }
}

/**
 * One step towards balance: hands one partition on from a loaded member to one that has at least two fewer, if need be through
 * members in between that subscribe to both's topics. Answers false when no such step is left.
 */
function evenOut(loads: readonly Load[]): boolean {
  const heaviestFirst = [...loads].sort((a, b) => b.seats.length - a.seats.length || a.id - b.id)
  const lightest = heaviestFirst.at(-1)
  for (const source of heaviestFirst) {
    if (lightest === undefined || source.seats.length - lightest.seats.length < 2) return false
    const path = shortestPath(source, loads)
    if (path === undefined) continue
    for (const { seat, to } of path) sit(seat, to)
    return true
  }
  return false
}

/** One partition that changes hands. */
interface Step {
  readonly seat: Seat
  readonly to: Load
}

/** The shortest chain of hand-overs from `source` to the least loaded member within reach that has at least two partitions fewer. */
function shortestPath(source: Load, loads: readonly Load[]): readonly Step[] | undefined {
  const reached = new Map<Load, { readonly from: Load; readonly seat: Seat }>()
  let frontier: Load[] = [source]
  while (frontier.length > 0) {
    const next: Load[] = []
    for (const from of frontier) {
      const movable = lastSeatByTopic(from)
      for (const to of loads) {
        if (to === source || reached.has(to)) continue
        const seat = movable.find((candidate) => to.topics.has(candidate.topic))
        if (seat === undefined) continue
        reached.set(to, { from, seat })
        next.push(to)
      }
    }
    const enough = next.filter((load) => load.seats.length <= source.seats.length - 2)
    if (enough.length > 0) {
      const target = enough.reduce((best, load) => (load.seats.length < best.seats.length ? load : best))
      return stepsTo(target, source, reached)
    }
    frontier = next
  }
  return undefined
}

/** The chain that leads to `target`, its last hand-over first: each member gives before it receives. */
function stepsTo(
  target: Load,
  source: Load,
  reached: ReadonlyMap<Load, { readonly from: Load; readonly seat: Seat }>,
): readonly Step[] {
  const steps: Step[] = []
  let to = target
  while (to !== source) {
    const { from, seat } = reached.get(to) as { readonly from: Load; readonly seat: Seat }
    steps.push({ seat, to })
    to = from
  }
  return steps
}

/** Of each topic the partition with the highest number, so that the low ones tend to stay; by topic. */
function lastSeatByTopic(load: Load): readonly Seat[] {
  const last = new Map<number, Seat>()
  for (const seat of load.seats) {
    const known = last.get(seat.topic)
    if (known === undefined || known.partition < seat.partition) last.set(seat.topic, seat)
  }
  return [...last.values()].sort((a, b) => a.topic - b.topic)
}

function sit(seat: Seat, load: Load): void {
  if (seat.load !== undefined) seat.load.seats.splice(seat.load.seats.indexOf(seat), 1)
  seat.load = load
  load.seats.push(seat)
}
