/** How partitions and members go: released, taken away, left. */
import type { WriteCommand } from "./command.ts"
import { claimRow, handOver, rebalance, removeMember } from "./group-rebalance.ts"
import { groupOf } from "./group-row.ts"
import { type MemberCall, type ViewAnswer, viewOf } from "./group-view.ts"

/** Arguments of `groups.release`. */
export interface ReleaseClaims extends MemberCall {
  readonly claims: readonly number[]
}

/** Arguments of `groups.expel`: what the caller saw, so that nothing is done to a member that has stirred since. */
export interface ExpelMembers extends MemberCall {
  readonly silent: readonly { readonly member: number; readonly beats: number }[]
  /** Revoked claims whose time is over. */
  readonly overdue: readonly number[]
}

/** Lets go of claims, so that their heirs get them at once. Claims that are void already are passed over. */
export const releaseClaims: WriteCommand<ReleaseClaims, ViewAnswer> = {
  mode: "write",
  name: "groups.release",
  durability: () => "written",
  run(access, { member, claims }) {
    const group = groupOf(access, member)
    if (group === undefined) return undefined
    for (const claim of claims) {
      const row = claimRow(access, claim)
      if (row?.member === member) handOver(access, row)
    }
    rebalance(access, group)
    access.changed("groups")
    return viewOf(access, member)
  },
}

/** Removes members that were silent for too long, and takes claims away that were not released in time. */
export const expelMembers: WriteCommand<ExpelMembers, ViewAnswer> = {
  mode: "write",
  name: "groups.expel",
  durability: () => "written",
  run(access, { member, silent, overdue }) {
    const group = groupOf(access, member)
    if (group === undefined) return undefined
    for (const suspect of silent) {
      const row = access.statement("SELECT beats FROM group_member WHERE id = ?").get(suspect.member)
      if (row !== undefined && Number(row.beats) === suspect.beats) removeMember(access, suspect.member)
    }
    for (const claim of overdue) {
      const row = claimRow(access, claim)
      if (row?.heir !== undefined) handOver(access, row)
    }
    rebalance(access, group)
    access.changed("groups")
    return viewOf(access, member)
  },
}

/** A member goes by its own will: its partitions are free at once. */
export const leaveGroup: WriteCommand<MemberCall, void> = {
  mode: "write",
  name: "groups.leave",
  durability: () => "written",
  run(access, { member }) {
    const group = groupOf(access, member)
    if (group === undefined) return
    removeMember(access, member)
    rebalance(access, group)
    access.changed("groups")
  },
}
