/** What one member needs to know of its group: its own claims, who else is there, and what others are to hand over. */
import type { Lineage, TopicPartition } from "@millrace/contract"
import type { GroupRecord, GroupTopic } from "./groups-record.ts"

export interface GroupView {
  /** The record's `id`. */
  readonly group: string
  readonly claims: readonly OwnClaim[]
  readonly peers: readonly Peer[]
  /** Other members' claims that are being taken back. */
  readonly passing: readonly PassingClaim[]
}

/** A partition that the member has. */
export interface OwnClaim extends TopicPartition {
  readonly number: number
  readonly lineage: Lineage
  /** It is to be let go of. */
  readonly wanted: boolean
}

export interface Peer {
  readonly member: number
  readonly sessionTimeoutMs: number
}

export interface PassingClaim {
  readonly number: number
  readonly timeoutMs: number
}

/** The view of a member; `undefined` when the record does not list it. */
export function viewOf(record: GroupRecord, member: number): GroupView | undefined {
  if (!record.members.some(({ number }) => number === member)) return undefined
  const topics = new Map(record.topics.map((topic) => [topic.number, topic]))
  const members = new Map(record.members.map((one) => [one.number, one]))
  const claims: OwnClaim[] = []
  const passing: PassingClaim[] = []
  for (const claim of record.claims) {
    const wanted = claim.heir !== undefined
    if (claim.member === member) {
      const { stream, topic, lineage } = topics.get(claim.topic) as GroupTopic
      claims.push({ number: claim.number, stream, topic, partition: claim.partition, lineage: lineage ?? "", wanted })
    } else if (wanted) {
      passing.push({ number: claim.number, timeoutMs: members.get(claim.member)?.rebalanceTimeoutMs ?? 0 })
    }
  }
  const peers = record.members
    .filter(({ number }) => number !== member)
    .map(({ number, sessionTimeoutMs }) => ({ member: number, sessionTimeoutMs }))
  return { group: record.id, claims, peers, passing }
}
