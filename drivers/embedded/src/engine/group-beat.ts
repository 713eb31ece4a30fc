/** The heartbeat: a member shows that it lives, looks after the others, and follows the catalog. */
import type { WriteAccess, WriteCommand } from "./command.ts"
import type { ProcessTable } from "./group-process.ts"
import { rebalance, removeMember } from "./group-rebalance.ts"
import { findGroup, insertGroup } from "./group-row.ts"
import { findTopic } from "./group-topics.ts"
import { type MemberCall, type ViewAnswer, viewOf } from "./group-view.ts"

/**
 * One heartbeat: a sign of life, and a look at the others. Members whose process is gone are removed, topics that were recreated and
 * partitions that were added are given out.
 */
export function beatCommand(processes: ProcessTable): WriteCommand<MemberCall, ViewAnswer> {
  return {
    mode: "write",
    name: "groups.beat",
    durability: () => "written",
    run(access, { member }) {
      const row = access
        .statement("UPDATE group_member SET beats = beats + 1 WHERE id = ? RETURNING group_name")
        .get(member)
      if (row === undefined) return undefined
      const group = row.group_name as string
      const swept = sweep(access, { group, processes, except: member })
      const mended = mend(access, group)
      if (swept || mended) {
        rebalance(access, group)
        access.changed("groups")
      }
      return viewOf(access, member)
    },
  }
}

/** Removes the members whose process is gone. Answers whether there were any; then the caller must rebalance. */
export function sweep(
  access: WriteAccess,
  { group, processes, except }: { readonly group: string; readonly processes: ProcessTable; readonly except: number },
): boolean {
  let swept = false
  for (const row of access.statement(selectProcesses).all(group, except)) {
    const identity = { pid: Number(row.pid), started: row.started as string, place: row.place as string }
    if (!processes.isGone(identity)) continue
    removeMember(access, Number(row.id))
    swept = true
  }
  return swept
}

/**
 * Follows the catalog: subscriptions to a topic that was recreated go over to the new one, whose group is made; partitions that were
 * added have no owner yet. Answers whether the caller must rebalance.
 */
function mend(access: WriteAccess, group: string): boolean {
  let mended = false
  for (const row of access.statement(selectSubscribedTopics).all(group)) {
    const name = { stream: row.stream as string, topic: row.topic as string }
    const topic = findTopic(access, name)
    if (topic === undefined) continue
    const groupId = findGroup(access, group, topic.id)?.id ?? insertGroup(access, group, topic.id)
    if (row.group_id === null || Number(row.group_id) !== groupId) {
      access.statement(moveSubscriptions).run(groupId, name.stream, name.topic, group)
      mended = true
    } else if (Number(row.claims) !== topic.partitionKeys.length) {
      mended = true
    }
  }
  return mended
}

const selectProcesses = "SELECT id, pid, started, place FROM group_member WHERE group_name = ? AND id <> ?"
const selectSubscribedTopics = `
  SELECT DISTINCT stream, topic, group_id,
    (SELECT count(*) FROM group_claim WHERE group_claim.group_id = group_subscription.group_id) AS claims
  FROM group_subscription JOIN group_member ON group_member.id = member WHERE group_name = ?`
const moveSubscriptions = `
  UPDATE group_subscription SET group_id = ?
  WHERE stream = ? AND topic = ? AND member IN (SELECT id FROM group_member WHERE group_name = ?)`
