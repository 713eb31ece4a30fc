/** What one member sees of its groups: its own claims, the others' signs of life, and what is being revoked. */
import type { Access, ReadCommand, WaitCommand } from "./command.ts"

/** A member's view. Plain data that crosses the thread. */
export interface GroupView {
  /** Differs whenever members or claims changed; heartbeats alone do not change it. */
  readonly version: string
  readonly claims: readonly OwnClaim[]
  readonly peers: readonly Peer[]
  /** Other members' partitions that are on their way to an heir. */
  readonly revoking: readonly RevokingClaim[]
  /** The store's keys of the topics that the member reads now. */
  readonly topicIds: readonly number[]
}

/** A partition that the member owns. */
export interface OwnClaim {
  readonly claim: number
  readonly stream: string
  readonly topic: string
  readonly partition: number
  /** It is to be let go of. */
  readonly revoking: boolean
}

/** Another member of one of the same groups. */
export interface Peer {
  readonly member: number
  /** Grows with each of its heartbeats. */
  readonly beats: number
  readonly sessionTimeoutMs: number
}

/** Another member's partition that must pass on within `timeoutMs`. */
export interface RevokingClaim {
  readonly claim: number
  readonly timeoutMs: number
}

/** `undefined`: the caller is no member any more. */
export type ViewAnswer = GroupView | undefined

/** Arguments of the calls that name only the member. */
export interface MemberCall {
  readonly member: number
}

/** Arguments of `groups.watch`. */
export interface WatchGroup extends MemberCall {
  /** The version last seen. */
  readonly version: string
  readonly maxWaitMs: number
}

/** A look without a heartbeat. */
export const observeGroup: ReadCommand<MemberCall, ViewAnswer> = {
  mode: "read",
  name: "groups.observe",
  run: (access, { member }) => viewOf(access, member),
}

/** Answers true as soon as the member's view is not the one that it knows, false when the wait is over. */
export const watchGroup: WaitCommand<WatchGroup, boolean> = {
  mode: "wait",
  name: "groups.watch",
  interest: "groups",
  maxWaitMs: ({ maxWaitMs }) => maxWaitMs,
  run(access, { member, version }, over) {
    if (versionOf(access, member) !== version) return true
    return over ? false : undefined
  },
}

/** The view of a member; `undefined` when it is no member any more. */
export function viewOf(access: Access, member: number): GroupView | undefined {
  const version = versionOf(access, member)
  if (version === undefined) return undefined
  return {
    version,
    claims: access
      .statement(selectOwnClaims)
      .all(member)
      .map((row) => ({
        claim: Number(row.claim),
        stream: row.stream as string,
        topic: row.topic as string,
        partition: Number(row.partition),
        revoking: row.heir !== null,
      })),
    peers: access
      .statement(selectPeers)
      .all(member)
      .map((row) => ({
        member: Number(row.id),
        beats: Number(row.beats),
        sessionTimeoutMs: Number(row.session_timeout_ms),
      })),
    revoking: access
      .statement(selectRevoking)
      .all(member)
      .map((row) => ({ claim: Number(row.claim), timeoutMs: Number(row.rebalance_timeout_ms) })),
    topicIds: access
      .statement(selectTopics)
      .all(member)
      .map((row) => Number(row.topic)),
  }
}

/** The view's version alone; `undefined` when it is no member any more. */
function versionOf(access: Access, member: number): string | undefined {
  const row = access.statement(selectVersion).get(member)
  return row === undefined ? undefined : ((row.version as string | null) ?? "")
}

const selectVersion = `
  SELECT (SELECT group_concat(consumer_group.id || ':' || generation) FROM group_subscription
          JOIN consumer_group ON consumer_group.id = group_id WHERE member = group_member.id) AS version
  FROM group_member WHERE id = ?`

const selectOwnClaims = `
  SELECT claim, partition, heir, stream, topic FROM group_claim
  JOIN group_subscription USING (member, group_id)
  WHERE member = ? ORDER BY stream, topic, partition`

const selectPeers = `
  SELECT DISTINCT id, beats, session_timeout_ms FROM group_subscription AS mine
  JOIN group_subscription AS theirs ON theirs.group_id = mine.group_id AND theirs.member <> mine.member
  JOIN group_member ON group_member.id = theirs.member
  WHERE mine.member = ?`

const selectRevoking = `
  SELECT claim, rebalance_timeout_ms FROM group_subscription AS mine
  JOIN group_claim ON group_claim.group_id = mine.group_id AND group_claim.member <> mine.member AND heir IS NOT NULL
  JOIN group_member ON group_member.id = group_claim.member
  WHERE mine.member = ?`

const selectTopics = `
  SELECT consumer_group.topic AS topic FROM group_subscription
  JOIN consumer_group ON consumer_group.id = group_id WHERE member = ?`
