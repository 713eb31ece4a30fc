/**
 * What can happen to a group, as pure changes of its record. A partition changes hands in three ways: it is free and is given at once;
 * its owner is alive, so it is marked for an heir and passes when the owner lets go or its time is over; its owner is gone, so it passes
 * at once. Each pass makes a new claim with a higher number, which is what fences the old one.
 *
 * Every change may be applied again to a record that has it already: whoever does not know whether its write was stored tells it again.
 */
import type { Lineage, TopicName } from "@millrace/contract"
import { assign, type Seat } from "./groups-assignment.ts"
import type { GroupClaim, GroupMember, GroupRecord, GroupTopic } from "./groups-record.ts"

/** A topic as the catalog has it at the moment; without `lineage` it does not exist. */
export interface TopicState extends TopicName {
  readonly lineage: Lineage | undefined
  readonly partitions: number
}

export interface Joiner {
  readonly memberId: string
  readonly topics: readonly TopicName[]
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
}

/** What one member has to tell of itself and of others. */
export interface Report {
  /** The claims that it is done with. */
  readonly released: readonly number[]
  /** Members that were silent for their session time-out. */
  readonly silent: readonly number[]
  /** Others' claims that were not released within their owner's time. */
  readonly overdue: readonly number[]
  /** The topics of the group as they are now. Those that are not named stay as they were. */
  readonly topics: readonly TopicState[]
}

/** A group that nobody has joined yet. */
export function newGroup(id: string): GroupRecord {
  return { id, generation: 0, next: 1, topics: [], members: [], claims: [] }
}

/** The topic belongs to the group from now on. */
export function withTopic(record: GroupRecord, state: TopicState): GroupRecord {
  if (topicOf(record, state) !== undefined) return withTopicStates(record, [state])
  const { stream, topic, lineage, partitions } = state
  const added: GroupTopic = { number: record.next, stream, topic, lineage, partitions }
  return { ...record, next: record.next + 1, topics: [...record.topics, added] }
}

/** The topic belongs to the group no more: its claims are void, and members that read nothing else are members no more. */
export function withoutTopic(record: GroupRecord, name: TopicName): GroupRecord {
  const gone = topicOf(record, name)
  if (gone === undefined) return record
  const members = record.members
    .map((member) => ({ ...member, topics: member.topics.filter((number) => number !== gone.number) }))
    .filter(({ topics }) => topics.length > 0)
  const rest: GroupRecord = {
    ...record,
    generation: record.generation + 1,
    topics: record.topics.filter((topic) => topic !== gone),
    members,
    claims: record.claims.filter(({ topic }) => topic !== gone.number),
  }
  return rebalanced(rest)
}

/** A new incarnation joins; one with the same id hands its partitions to it, under new claims, and is a member no more. */
export function withMember(record: GroupRecord, joiner: Joiner): GroupRecord {
  const topics = joiner.topics.flatMap((name) => topicOf(record, name)?.number ?? [])
  const { memberId, sessionTimeoutMs, rebalanceTimeoutMs } = joiner
  const member: GroupMember = { number: record.next, memberId, topics, sessionTimeoutMs, rebalanceTimeoutMs }
  const old = record.members.find((other) => other.memberId === memberId)
  let next: GroupRecord = { ...record, next: record.next + 1, members: [...record.members, member] }
  if (old !== undefined) {
    const inherited = (claim: GroupClaim): boolean =>
      claim.member === old.number && claim.heir === undefined && topics.includes(claim.topic)
    const claims = next.claims.map((claim) =>
      inherited(claim)
        ? { ...claim, heir: member.number }
        : claim.heir === old.number
          ? { ...claim, heir: topics.includes(claim.topic) ? member.number : undefined }
          : claim,
    )
    next = removeMembers({ ...next, claims }, [old.number])
  }
  return rebalanced(next)
}

/** A member goes, or was found dead; its partitions pass at once. */
export function withoutMember(record: GroupRecord, member: number): GroupRecord {
  if (!record.members.some(({ number }) => number === member)) return record
  return rebalanced(removeMembers(record, [member]))
}

/** Applies what a member tells. The same record when nothing of it is news. */
export function reported(record: GroupRecord, member: number, report: Report): GroupRecord {
  if (!record.members.some(({ number }) => number === member)) return record
  let next = withTopicStates(record, report.topics)
  const done = next.claims.filter(
    (claim) =>
      (claim.member === member && report.released.includes(claim.number)) ||
      (claim.heir !== undefined && report.overdue.includes(claim.number)),
  )
  next = passOn(next, done)
  const silent = report.silent.filter((one) => one !== member && next.members.some(({ number }) => number === one))
  if (silent.length > 0) next = removeMembers(next, silent)
  return next === record ? record : rebalanced(next)
}

/** The group's topic of this name. */
export function topicOf(record: GroupRecord, name: TopicName): GroupTopic | undefined {
  return record.topics.find(({ stream, topic }) => stream === name.stream && topic === name.topic)
}

/** Brings the topics up to date. Claims of another history are void. */
function withTopicStates(record: GroupRecord, states: readonly TopicState[]): GroupRecord {
  let next = record
  for (const state of states) {
    const known = topicOf(next, state)
    if (known === undefined) continue
    if (known.lineage === state.lineage && known.partitions === state.partitions) continue
    const topics = next.topics.map((topic) =>
      topic === known ? { ...known, lineage: state.lineage, partitions: state.partitions } : topic,
    )
    const stays = ({ topic, partition }: GroupClaim): boolean =>
      topic !== known.number || (known.lineage === state.lineage && partition < state.partitions)
    next = { ...next, generation: next.generation + 1, topics, claims: next.claims.filter(stays) }
  }
  return next === record ? record : rebalanced(next)
}

/** Members go at once: what was on its way to them stays where it is, what they had passes to the heirs or is free. */
function removeMembers(record: GroupRecord, gone: readonly number[]): GroupRecord {
  const claims = record.claims.map((claim) =>
    claim.heir !== undefined && gone.includes(claim.heir) ? { ...claim, heir: undefined } : claim,
  )
  const members = record.members.filter(({ number }) => !gone.includes(number))
  const next = { ...record, generation: record.generation + 1, members, claims }
  return passOn(
    next,
    next.claims.filter(({ member }) => gone.includes(member)),
  )
}

/** These claims end; where there is an heir, it gets a new one. */
function passOn(record: GroupRecord, done: readonly GroupClaim[]): GroupRecord {
  if (done.length === 0) return record
  let number = record.next
  const claims = record.claims.flatMap((claim): GroupClaim[] => {
    if (!done.includes(claim)) return [claim]
    if (claim.heir === undefined) return []
    return [{ ...claim, number: number++, member: claim.heir, heir: undefined }]
  })
  return { ...record, next: number, generation: record.generation + 1, claims }
}

/** Gives the free partitions out and marks those that must move. Only partitions that move are touched. */
function rebalanced(record: GroupRecord): GroupRecord {
  const byPlace = new Map(record.claims.map((claim) => [placeKey(claim), claim]))
  const seats: Seat[] = []
  for (const { number, partitions } of record.topics) {
    for (let partition = 0; partition < partitions; partition++) {
      const claim = byPlace.get(placeKey({ topic: number, partition }))
      seats.push({ topic: number, partition, member: claim?.heir ?? claim?.member })
    }
  }
  let { next } = record
  let changed = false
  const claims: GroupClaim[] = []
  for (const seat of assign(record.members, seats)) {
    const claim = byPlace.get(placeKey(seat))
    if (claim === undefined) {
      if (seat.member === undefined) continue
      const { topic, partition, member } = seat
      claims.push({ number: next++, topic, partition, member, heir: undefined })
      changed = true
    } else {
      const heir = seat.member === claim.member ? undefined : seat.member
      claims.push(heir === claim.heir ? claim : { ...claim, heir })
      changed ||= heir !== claim.heir
    }
  }
  return changed ? { ...record, next, generation: record.generation + 1, claims } : record
}

function placeKey({ topic, partition }: { readonly topic: number; readonly partition: number }): string {
  return `${topic}/${partition}`
}
