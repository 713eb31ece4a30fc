/** A group's progress, looked at and moved from outside: while its members read, and while nobody does. */
import {
  type Claim,
  ClosedError,
  type GroupDescription,
  InvalidError,
  type Membership,
  MillraceError,
  NotAssignedError,
  type OffsetEntry,
  type Position,
  type TopicName,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { Lag } from "../consumer/consumer.ts"
import { laneKey } from "../partition/lane.ts"
import { checkStartAt, type StartAt } from "../partition/start-at.ts"
import { findStarts } from "../partition/start-position.ts"
import { StoredProgress } from "../progress/stored-progress.ts"

/** The time-outs of a member that only stores, and how long it tries to become one, in ms. */
const membershipMs = 10_000

/** Which group's progress in which topic. */
export interface GroupOffsets {
  readonly group: string
  readonly topic: TopicName
}

/** How far each partition of the topic is behind, by what the group has stored; all of it where nothing is. */
export async function groupLag(context: ClientContext, { group, topic }: GroupOffsets): Promise<Lag[]> {
  const owner = { kind: "group", name: group } as const
  const progress = new StoredProgress(context.session, { what: `group ${shown(group)}`, owner, partition: undefined })
  return progress.lag(await partitionsOf(context, topic), () => undefined)
}

/**
 * Stores for every partition of the topic where the group's next member begins.
 * @throws InvalidError while a member has one of the partitions, with the members' names; NotAssignedError when one comes at the same
 *   moment: then some partitions may be moved already, and the call can be made again
 */
export async function resetGroupOffsets(
  context: ClientContext,
  { group, topic }: GroupOffsets,
  to: StartAt,
): Promise<void> {
  const what = `resetOffsets of group ${shown(group)} on topic "${topicText(topic)}"`
  const target = checkStartAt(what, to)
  if (target.kind === "next") {
    throw new InvalidError(
      `${what}: startAt.kind is "next", which is where the group stands already; it must be one of "first", "last", "offset", "timestampMicros". To skip everything that is there, give the time of now`,
    )
  }
  const { session } = context
  refuseReaders(what, await session.groups.describe(group, topic), topic)
  const positions = await placesOf(context, await partitionsOf(context, topic), target)
  const outcomes = await session.offsets.store({ kind: "group", name: group }, positions)
  // Some backends let nobody but an owner store: then this is one for a moment.
  const left = positions.filter((_, index) => outcomes[index] instanceof NotAssignedError)
  const failed = outcomes.find((outcome) => outcome !== undefined && !(outcome instanceof NotAssignedError))
  if (failed !== undefined) throw failed
  if (left.length > 0) await storeAsMember(context, { group, topic, what }, left)
}

/** Joins, waits until it has the partitions, stores, and leaves. */
async function storeAsMember(
  { session, clock }: ClientContext,
  { group, topic, what }: GroupOffsets & { readonly what: string },
  positions: readonly Position[],
): Promise<void> {
  const timeouts = { sessionTimeoutMs: membershipMs, rebalanceTimeoutMs: membershipMs }
  const membership = await session.groups.join(group, [topic], timeouts)
  const tooLate = Promise.withResolvers<never>()
  const timer = clock.setTimer(membershipMs, () =>
    tooLate.reject(new NotAssignedError(`${what}: other members came in the way; shut them down and try again`)),
  )
  try {
    const entries = await Promise.race([owned(membership, positions), tooLate.promise])
    const outcomes = await session.offsets.store({ kind: "group", name: group }, entries)
    const failed = outcomes.find((outcome) => outcome !== undefined)
    if (failed !== undefined) throw failed
  } finally {
    timer.cancel()
    await membership.leave()
  }
}

/** The positions with the claims on their partitions, once the member has them all. */
async function owned(membership: Membership, positions: readonly Position[]): Promise<OffsetEntry[]> {
  const claims = new Map<string, Claim>()
  for await (const { assigned, revoked, lost } of membership.changes) {
    for (const claim of [...lost, ...revoked]) claims.delete(laneKey(claim))
    if (revoked.length > 0) await membership.release(revoked)
    for (const claim of assigned) claims.set(laneKey(claim), claim)
    const entries = positions.map((position) => ({ position, claim: claims.get(laneKey(position)) }))
    if (entries.every(({ claim }) => claim !== undefined)) {
      return entries.map(({ position, claim }) => ({ ...position, claim: claim as Claim }))
    }
  }
  throw new ClosedError("the membership ended before it had the partitions")
}

function refuseReaders(what: string, { members }: GroupDescription, topic: TopicName): void {
  const readers = members.filter(({ partitions }) =>
    partitions.some((partition) => partition.stream === topic.stream && partition.topic === topic.topic),
  )
  if (readers.length === 0) return
  const names = readers.map(({ memberId }) => shown(memberId)).join(", ")
  throw new InvalidError(
    `${what}: ${readers.length === 1 ? `member ${names} reads` : `members ${names} read`} the topic; offsets can only be reset while nobody does, since a member that reads goes on where it stands and stores that. Shut the members down first`,
  )
}

async function placesOf(
  context: ClientContext,
  partitions: readonly TopicPartition[],
  to: StartAt,
): Promise<Position[]> {
  const { session } = context
  if (to.kind === "offset") {
    const marks = await session.log.watermarks(partitions)
    return marks.map((mark, index) => {
      const { first, end, lineage } = valueOf<Watermarks>(mark)
      return { ...(partitions[index] as TopicPartition), offset: within(to.value, first, end), lineage }
    })
  }
  const requests = partitions.map((partition) => ({ partition, startAt: to }))
  const starts = await findStarts(session, requests, { owner: undefined, allowReplay: true })
  return starts.map((start, index) => {
    const { offset, lineage } = valueOf(start)
    return { ...(partitions[index] as TopicPartition), offset, lineage }
  })
}

/** As the topic is now: partitions may have been added. */
async function partitionsOf(context: ClientContext, topic: TopicName): Promise<TopicPartition[]> {
  context.topics.forget(topic)
  const { partitions } = await context.topics.describe(topic)
  return partitions.map(({ partition }) => ({ stream: topic.stream, topic: topic.topic, partition }))
}

function within(value: bigint, least: bigint, most: bigint): bigint {
  if (value < least) return least
  return value > most ? most : value
}

function valueOf<V>(outcome: V | MillraceError): V {
  if (outcome instanceof MillraceError) throw outcome
  return outcome as V
}
