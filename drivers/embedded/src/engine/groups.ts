/** Groups as objects of the catalog: made, described, deleted. Their members' commands stand beside. */
import { AlreadyExistsError, type GroupDescription, type TopicName } from "@millrace/contract"
import type { ReadCommand, Room, WriteAccess, WriteCommand } from "./command.ts"
import { beatCommand } from "./group-beat.ts"
import { expelMembers, leaveGroup, releaseClaims } from "./group-departure.ts"
import { joinCommand } from "./group-join.ts"
import type { ProcessTable } from "./group-process.ts"
import { rebalance } from "./group-rebalance.ts"
import { findGroup, insertGroup, requireGroup } from "./group-row.ts"
import { groupSchema } from "./group-schema.ts"
import { topicText } from "./group-topics.ts"
import { observeGroup, watchGroup } from "./group-view.ts"
import { forgetGroupOffsets } from "./offsets.ts"
import { refuseHeldGroup } from "./transactional-holds.ts"

/** Arguments of `groups.create`, `groups.describe` and `groups.delete`. */
export interface GroupName {
  readonly group: string
  readonly topic: TopicName
}

/** The groups' part of the engine. */
export function groupRoom(processes: ProcessTable): Room {
  return {
    schema: groupSchema,
    commands: [
      createGroup,
      describeCommand(processes),
      deleteGroup,
      joinCommand(processes),
      beatCommand(processes),
      observeGroup,
      watchGroup,
      releaseClaims,
      expelMembers,
      leaveGroup,
    ],
    topicDeleted,
  }
}

/** Makes a group of a topic. @throws AlreadyExistsError, NotFoundError for the topic */
const createGroup: WriteCommand<GroupName, void> = {
  mode: "write",
  name: "groups.create",
  durability: () => "synced",
  run(access, { group, topic: name }) {
    const topic = access.topic(name)
    if (findGroup(access, group, topic.id) !== undefined) {
      throw new AlreadyExistsError(`group ${JSON.stringify(group)} of ${topicText(name)} exists already`, {
        context: { stream: name.stream, topic: name.topic, group },
      })
    }
    insertGroup(access, group, topic.id)
  },
}

/** The members with their partitions of this topic. Members whose process is gone are left out, though nobody has removed them yet. */
function describeCommand(processes: ProcessTable): ReadCommand<GroupName, GroupDescription> {
  return {
    mode: "read",
    name: "groups.describe",
    run(access, { group, topic: name }) {
      const { id, generation } = requireGroup(access, group, name)
      const members = new Map<number, { memberId: string; partitions: (TopicName & { partition: number })[] }>()
      for (const row of access.statement(selectMembers).all(id)) {
        const identity = { pid: Number(row.pid), started: row.started as string, place: row.place as string }
        if (processes.isGone(identity)) continue
        members.set(Number(row.id), { memberId: row.member_id as string, partitions: [] })
      }
      for (const row of access.statement(selectOwners).all(id)) {
        const { stream, topic } = name
        members.get(Number(row.member))?.partitions.push({ stream, topic, partition: Number(row.partition) })
      }
      return { group, generation, members: [...members.values()] }
    },
  }
}

/** Forgets a group and its offsets. Its members lose their claims, and members that read nothing else are members no more. */
const deleteGroup: WriteCommand<GroupName, void> = {
  mode: "write",
  name: "groups.delete",
  durability: () => "synced",
  run(access, { group, topic: name }) {
    const { id, topicId } = requireGroup(access, group, name)
    refuseHeldGroup(access, topicId, group)
    const members = access.statement("SELECT member FROM group_subscription WHERE group_id = ?").all(id)
    access.statement("DELETE FROM group_subscription WHERE group_id = ?").run(id)
    for (const row of members) access.statement(dropIfIdle).run(row.member as bigint)
    access.statement("DELETE FROM group_claim WHERE group_id = ?").run(id)
    access.statement("DELETE FROM consumer_group WHERE id = ?").run(id)
    forgetGroupOffsets(access, topicId, group)
    rebalance(access, group)
    access.changed("groups")
  },
}

const selectMembers = `
  SELECT id, member_id, pid, started, place FROM group_member
  JOIN group_subscription ON member = id WHERE group_id = ? ORDER BY id`
const selectOwners = "SELECT partition, member FROM group_claim WHERE group_id = ? ORDER BY partition"
const dropIfIdle = `
  DELETE FROM group_member
  WHERE id = ? AND NOT EXISTS (SELECT 1 FROM group_subscription WHERE member = group_member.id)`

/** A topic goes with its groups. Members keep their subscription by name and find the topic again if it is made anew. */
function topicDeleted(access: WriteAccess, topicId: number): void {
  const groups = access.statement("SELECT id, name FROM consumer_group WHERE topic = ?").all(topicId)
  for (const row of groups) {
    const id = row.id as bigint
    access.statement("DELETE FROM group_claim WHERE group_id = ?").run(id)
    access.statement("UPDATE group_subscription SET group_id = NULL WHERE group_id = ?").run(id)
    access.statement("DELETE FROM consumer_group WHERE id = ?").run(id)
    rebalance(access, row.name as string)
  }
  if (groups.length > 0) access.changed("groups")
}
