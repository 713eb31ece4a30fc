/** How the leader of a classic group gives partitions to members. Pure. The names are those under which Kafka's other clients know them. */

/** A member as the assignors see it. */
export interface AssignorMember {
  readonly memberId: string
  readonly instanceId: string | undefined
  /** By Kafka's names. */
  readonly topics: readonly string[]
  /** What it says that it has, and since which generation; −1: it does not tell. */
  readonly owned: readonly TopicPart[]
  readonly generation: number
}

/** A partition by Kafka's name of its topic. */
export interface TopicPart {
  readonly topic: string
  readonly partition: number
}

/** What each member gets, by member id; every member is in it. */
export type Assignment = ReadonlyMap<string, readonly TopicPart[]>

/** One way to give out. */
export interface Assignor {
  readonly name: string
  /** Whether members give up everything before they join: otherwise they keep what they have while others join. */
  readonly eager: boolean
  /** @param counts How many partitions each topic has; topics that are not there are missing. */
  assign(members: readonly AssignorMember[], counts: ReadonlyMap<string, number>): Assignment
}

/** The order in which members are served: those with a stable name first, by it, so that they get the same again. */
export function inOrder(members: readonly AssignorMember[]): AssignorMember[] {
  return members.toSorted((one, other) => {
    if (one.instanceId !== undefined && other.instanceId !== undefined) return compare(one.instanceId, other.instanceId)
    if (one.instanceId !== undefined) return -1
    if (other.instanceId !== undefined) return 1
    return compare(one.memberId, other.memberId)
  })
}

/** What tells partitions apart. */
export function partKey({ topic, partition }: TopicPart): string {
  return `${topic}/${partition}`
}

/** By UTF-16 code units, as Java compares strings. */
function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}
