/** Rows of groups: found, made, and marked as changed. */
import type { TopicName } from "@millrace/contract"
import type { Access, WriteAccess } from "./command.ts"
import { noSuchGroup } from "./group-topics.ts"

/** One group of one topic. */
export interface GroupRow {
  readonly id: number
  readonly topicId: number
  /** Grows whenever its members or claims change. */
  readonly generation: number
}

/** The group of a topic, if there is one. */
export function findGroup(access: Access, group: string, topicId: number): GroupRow | undefined {
  const row = access
    .statement("SELECT id, generation FROM consumer_group WHERE name = ? AND topic = ?")
    .get(group, topicId)
  return row === undefined ? undefined : { id: Number(row.id), topicId, generation: Number(row.generation) }
}

/** @throws NotFoundError for the topic or the group */
export function requireGroup(access: Access, group: string, name: TopicName): GroupRow {
  const row = findGroup(access, group, access.topic(name).id)
  if (row === undefined) throw noSuchGroup(group, name)
  return row
}

/** Makes a group; the caller has seen that there is none. Answers its key. */
export function insertGroup(access: WriteAccess, group: string, topicId: number): number {
  const { lastInsertRowid } = access
    .statement("INSERT INTO consumer_group (name, topic, generation) VALUES (?, ?, 0)")
    .run(group, topicId)
  return Number(lastInsertRowid)
}

/** The name of a member's groups; `undefined` when it is no member any more. */
export function groupOf(access: Access, member: number): string | undefined {
  const row = access.statement("SELECT group_name FROM group_member WHERE id = ?").get(member)
  return row?.group_name as string | undefined
}

/** Marks that something about a group's members or claims changed. */
export function grow(access: WriteAccess, groupId: number): void {
  access.statement("UPDATE consumer_group SET generation = generation + 1 WHERE id = ?").run(groupId)
}

/** Marks every group that a member belongs to as changed. */
export function growGroupsOf(access: WriteAccess, member: number): void {
  access
    .statement(
      `UPDATE consumer_group SET generation = generation + 1
       WHERE id IN (SELECT group_id FROM group_subscription WHERE member = ?)`,
    )
    .run(member)
}
