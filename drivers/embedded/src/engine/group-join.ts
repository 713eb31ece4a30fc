/** How a member joins its groups, for the first time or again. */
import { FencedError, type NotFoundError, type TopicName } from "@millrace/contract"
import type { WriteAccess, WriteCommand } from "./command.ts"
import { sweep } from "./group-beat.ts"
import type { ProcessTable } from "./group-process.ts"
import { rebalance, replaceMember } from "./group-rebalance.ts"
import { findGroup, growGroupsOf, insertGroup } from "./group-row.ts"
import { findTopic, noSuchGroup, noSuchTopic } from "./group-topics.ts"
import { type GroupView, viewOf } from "./group-view.ts"

/** Arguments of `groups.join`. */
export interface JoinGroup {
  readonly group: string
  readonly topics: readonly TopicName[]
  readonly memberId: string
  /** Whole milliseconds. */
  readonly sessionTimeoutMs: number
  /** Whole milliseconds. */
  readonly rebalanceTimeoutMs: number
  /**
   * A member that was taken for dead comes back, having read the topics of these keys. It gives way to a newer member of its id, and
   * finds topics again that were recreated meanwhile. Absent: a new member, which takes the place of an older one of its id.
   */
  readonly returning?: readonly number[]
}

/** Answer of `groups.join`. */
export interface Joined {
  /** The new incarnation, for all later calls. */
  readonly member: number
  readonly view: GroupView
}

/** Makes a member known, gives it the free partitions, and marks those that move to it. Answers the member's number and view. */
export function joinCommand(processes: ProcessTable): WriteCommand<JoinGroup, Joined> {
  return {
    mode: "write",
    name: "groups.join",
    durability: () => "written",
    run(access, args) {
      const subscriptions = subscribable(access, args)
      const older = membersOfId(access, args)
      if (args.returning !== undefined && older.length > 0) throw replaced(args)
      const { pid, started, place } = processes.self
      const { lastInsertRowid } = access
        .statement(insertMember)
        .run(args.group, args.memberId, pid, started, place, args.sessionTimeoutMs, args.rebalanceTimeoutMs)
      const member = Number(lastInsertRowid)
      for (const { stream, topic, groupId } of subscriptions) {
        access.statement(insertSubscription).run(member, stream, topic, groupId ?? null)
      }
      for (const old of older) replaceMember(access, old, member)
      sweep(access, { group: args.group, processes, except: member })
      growGroupsOf(access, member)
      rebalance(access, args.group)
      access.changed("groups")
      return { member, view: viewOf(access, member) as GroupView }
    },
  }
}

const insertMember = `
  INSERT INTO group_member
    (group_name, member_id, pid, started, place, session_timeout_ms, rebalance_timeout_ms, beats)
  VALUES (?, ?, ?, ?, ?, ?, ?, 0)`
const insertSubscription = "INSERT INTO group_subscription (member, stream, topic, group_id) VALUES (?, ?, ?, ?)"
const selectMembersOfId = `
  SELECT id, stream, topic FROM group_member JOIN group_subscription ON member = id
  WHERE group_name = ? AND member_id = ?`

interface Subscription extends TopicName {
  /** Absent while the topic does not exist. */
  readonly groupId: number | undefined
}

/** The topics to subscribe to, each once, with their groups. @throws NotFoundError */
function subscribable(access: WriteAccess, { group, topics, returning }: JoinGroup): Subscription[] {
  const found = new Map<string, Subscription>()
  let missing: NotFoundError | undefined
  for (const { stream, topic } of topics) {
    const key = topicKey(stream, topic)
    const row = findTopic(access, { stream, topic })
    if (row === undefined) {
      missing ??= noSuchTopic({ stream, topic })
      if (returning !== undefined) found.set(key, { stream, topic, groupId: undefined })
      continue
    }
    const known = findGroup(access, group, row.id)
    if (known !== undefined) found.set(key, { stream, topic, groupId: known.id })
    else if (returning !== undefined && !returning.includes(row.id)) {
      found.set(key, { stream, topic, groupId: insertGroup(access, group, row.id) })
    } else missing ??= noSuchGroup(group, { stream, topic })
  }
  if (missing !== undefined && (returning === undefined || found.size === 0)) throw missing
  return [...found.values()]
}

/** Members of the same id that read one of the same topics. Others of that id are different members. */
function membersOfId(access: WriteAccess, { group, topics, memberId }: JoinGroup): number[] {
  const wanted = new Set(topics.map(({ stream, topic }) => topicKey(stream, topic)))
  const rows = access.statement(selectMembersOfId).all(group, memberId)
  const older = rows.filter((row) => wanted.has(topicKey(row.stream as string, row.topic as string)))
  return [...new Set(older.map((row) => Number(row.id)))]
}

function topicKey(stream: string, topic: string): string {
  return JSON.stringify([stream, topic])
}

function replaced({ group, memberId }: JoinGroup): FencedError {
  return new FencedError(
    `member ${JSON.stringify(memberId)} of group ${JSON.stringify(group)} was replaced by a newer one of the same id`,
    { context: { group, memberId } },
  )
}
