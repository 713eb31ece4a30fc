/**
 * The rows of members and claims, and how they move. A partition changes hands in three ways: it is free and is given at once; its
 * owner is alive, so it is marked for an heir and passes when the owner has let go or its time is over; its owner is gone, so it
 * passes at once. Each pass gives the claim a new number, which voids the old one. All of this runs inside the caller's transaction.
 */
import type { WriteAccess } from "./command.ts"
import { assign, type Candidate, type OwnedPartition } from "./group-assignment.ts"
import { grow, growGroupsOf } from "./group-row.ts"
import { findTopic } from "./group-topics.ts"

/** A partition of a group with its owner. */
export interface ClaimRow {
  readonly groupId: number
  readonly partition: number
  /** Unique in the store. */
  readonly claim: number
  readonly member: number
  /** The member that gets it next; absent while it is not being revoked. */
  readonly heir: number | undefined
}

/**
 * Brings the claims of all groups of one name in line with their members: gives the free partitions out and marks those that must
 * move. Only partitions that move are touched. Generations grow where something changed.
 */
export function rebalance(access: WriteAccess, group: string): void {
  const { candidates, partitionCounts } = subscriptionsOf(access, group)
  const rows = new Map(claimsOf(access, group).map((row) => [placeKey(row.groupId, row.partition), row]))
  const partitions: OwnedPartition[] = []
  for (const [groupId, count] of partitionCounts) {
    for (let partition = 0; partition < count; partition++) {
      const row = rows.get(placeKey(groupId, partition))
      const owner = row?.heir ?? row?.member
      partitions.push({ topic: groupId, partition, ...(owner === undefined ? {} : { owner }) })
    }
  }
  const changed = new Set<number>()
  for (const { topic: groupId, partition, member } of assign(candidates, partitions)) {
    if (member === undefined) continue
    const row = rows.get(placeKey(groupId, partition))
    if (row === undefined) {
      access.statement(insertClaim).run(groupId, partition, nextClaim(access), member)
    } else {
      const heir = member === row.member ? undefined : member
      if (heir === row.heir) continue
      access.statement("UPDATE group_claim SET heir = ? WHERE claim = ?").run(heir ?? null, row.claim)
    }
    changed.add(groupId)
  }
  for (const groupId of changed) grow(access, groupId)
}

/** A claim leaves its owner: to its heir where it has one, else it is free until the next `rebalance`. */
export function handOver(access: WriteAccess, row: ClaimRow): void {
  if (row.heir === undefined) access.statement("DELETE FROM group_claim WHERE claim = ?").run(row.claim)
  else giveTo(access, row, row.heir)
  grow(access, row.groupId)
}

/** A member goes: its partitions pass to their heirs or are free until the next `rebalance`. What it was to inherit stays where it is. */
export function removeMember(access: WriteAccess, member: number): void {
  growGroupsOf(access, member)
  access.statement("UPDATE group_claim SET heir = NULL WHERE heir = ?").run(member)
  for (const row of ownedBy(access, member)) handOver(access, row)
  access.statement("DELETE FROM group_subscription WHERE member = ?").run(member)
  access.statement("DELETE FROM group_member WHERE id = ?").run(member)
}

/**
 * A new incarnation takes the place of an old one: it gets the partitions of its groups under new claims, unless they were promised to
 * others, and inherits what the old one was to inherit.
 */
export function replaceMember(access: WriteAccess, old: number, by: number): void {
  const groups = access.statement("SELECT group_id FROM group_subscription WHERE member = ?").all(by)
  const own = new Set(groups.map((row) => Number(row.group_id)))
  for (const row of ownedBy(access, old)) {
    if (row.heir !== undefined || !own.has(row.groupId)) continue
    giveTo(access, row, by)
    grow(access, row.groupId)
  }
  for (const groupId of own) {
    access.statement("UPDATE group_claim SET heir = ? WHERE heir = ? AND group_id = ?").run(by, old, groupId)
  }
  removeMember(access, old)
}

/** One claim by its number, if it is still good. */
export function claimRow(access: WriteAccess, claim: number): ClaimRow | undefined {
  const row = access.statement(`${selectClaims} WHERE claim = ?`).get(claim)
  return row === undefined ? undefined : toClaimRow(row)
}

const selectClaims = "SELECT group_id, partition, claim, member, heir FROM group_claim"
const insertClaim = "INSERT INTO group_claim (group_id, partition, claim, member, heir) VALUES (?, ?, ?, ?, NULL)"

function nextClaim(access: WriteAccess): number {
  const row = access.statement("UPDATE group_claim_counter SET next = next + 1 RETURNING next").get()
  return Number(row?.next)
}

function giveTo(access: WriteAccess, row: ClaimRow, member: number): void {
  access
    .statement("UPDATE group_claim SET member = ?, heir = NULL, claim = ? WHERE claim = ?")
    .run(member, nextClaim(access), row.claim)
}

function ownedBy(access: WriteAccess, member: number): ClaimRow[] {
  return access.statement(`${selectClaims} WHERE member = ?`).all(member).map(toClaimRow)
}

function claimsOf(access: WriteAccess, group: string): ClaimRow[] {
  return access
    .statement(`${selectClaims} WHERE group_id IN (SELECT id FROM consumer_group WHERE name = ?)`)
    .all(group)
    .map(toClaimRow)
}

/** Who subscribes to what, and how many partitions each group of this name has. */
function subscriptionsOf(
  access: WriteAccess,
  group: string,
): { readonly candidates: Candidate[]; readonly partitionCounts: Map<number, number> } {
  const topics = new Map<number, Set<number>>()
  const partitionCounts = new Map<number, number>()
  for (const row of access.statement(selectSubscriptions).all(group)) {
    const member = Number(row.member)
    const groupId = Number(row.group_id)
    if (!partitionCounts.has(groupId)) {
      const topic = findTopic(access, { stream: row.stream as string, topic: row.topic as string })
      partitionCounts.set(groupId, topic?.partitionKeys.length ?? 0)
    }
    const own = topics.get(member)
    if (own === undefined) topics.set(member, new Set([groupId]))
    else own.add(groupId)
  }
  return { candidates: [...topics].map(([id, own]) => ({ id, topics: own })), partitionCounts }
}

const selectSubscriptions = `
  SELECT member, group_id, stream, topic FROM group_subscription
  JOIN group_member ON group_member.id = group_subscription.member
  WHERE group_name = ? AND group_id IS NOT NULL`

function toClaimRow(row: Record<string, unknown>): ClaimRow {
  return {
    groupId: Number(row.group_id),
    partition: Number(row.partition),
    claim: Number(row.claim),
    member: Number(row.member),
    heir: row.heir === null ? undefined : Number(row.heir),
  }
}

function placeKey(groupId: number, partition: number): string {
  return `${groupId}/${partition}`
}
