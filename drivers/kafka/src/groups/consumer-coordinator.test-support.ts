/** A coordinator by the rules of KIP-848 ("Heartbeat & Membership", "Reconciliation"): what a member's machine is tested against. */

import { MillraceError } from "@millrace/contract"
import type { ConsumerAnswer, ConsumerCall } from "./consumer-protocol.machine.ts"
import type { Seat } from "./member-claims.ts"

interface MemberState {
  epoch: number
  previousEpoch: number
  assigned: Set<number>
  revoking: Set<number>
  /** What it was last told, so that a change is told. */
  told: string | undefined
}

export class ConsumerCoordinator {
  readonly #members = new Map<string, MemberState>()
  readonly #partitions: number
  epoch = 1

  constructor(partitions: number) {
    this.#partitions = partitions
  }

  get members(): readonly string[] {
    return [...this.#members.keys()]
  }

  /** Whether a commit of this member and epoch would be taken. */
  takesCommit(memberId: string, epoch: number): boolean {
    return this.#members.get(memberId)?.epoch === epoch
  }

  /** Whose the partition is, on its way back included. */
  ownerOf(partition: number): string | undefined {
    for (const [memberId, { assigned, revoking }] of this.#members) {
      if (assigned.has(partition) || revoking.has(partition)) return memberId
    }
    return undefined
  }

  /** As after its session or rebalance timeout. */
  fence(memberId: string): void {
    if (this.#members.delete(memberId)) this.epoch++
  }

  handle(memberId: string, call: ConsumerCall): ConsumerAnswer {
    if (call.name === "leave") {
      this.fence(memberId)
      return { kind: "left" }
    }
    if (call.name === "evict") return { kind: "evicted" }
    let member = this.#members.get(memberId)
    if (call.epoch === 0) {
      this.epoch++
      member = { epoch: 0, previousEpoch: -1, assigned: new Set(), revoking: new Set(), told: undefined }
      this.#members.set(memberId, member)
    } else if (member === undefined) return { kind: "gone", error: gone("UNKNOWN_MEMBER_ID") }
    else if (call.epoch !== member.epoch && !isRepeat(call, member)) {
      this.fence(memberId)
      return { kind: "gone", error: gone("FENCED_MEMBER_EPOCH") }
    }
    this.#reconcile(memberId, member, call.owned)
    const now = [...member.assigned].toSorted((one, other) => one - other).join()
    const changed = call.full || now !== member.told
    member.told = now
    const target = changed ? { target: [...member.assigned].map(seat) } : {}
    return { kind: "beat", epoch: member.epoch, intervalMs: 100, ...target }
  }

  #reconcile(memberId: string, member: MemberState, owned: readonly Seat[] | undefined): void {
    if (member.revoking.size > 0) {
      if (owned === undefined || owned.some(({ partition }) => member.revoking.has(partition))) return
      member.revoking.clear()
    }
    const target = this.#target(memberId)
    const excess = [...member.assigned].filter((partition) => !target.has(partition))
    if (excess.length > 0 && member.epoch > 0) {
      for (const partition of excess) {
        member.assigned.delete(partition)
        member.revoking.add(partition)
      }
      return
    }
    if (member.epoch !== this.epoch) {
      member.previousEpoch = member.epoch
      member.epoch = this.epoch
    }
    for (const partition of target) {
      if (this.ownerOf(partition) === undefined) member.assigned.add(partition)
    }
  }

  /** Runs of even length, in the order of joining. */
  #target(memberId: string): Set<number> {
    const members = this.members
    const nth = members.indexOf(memberId)
    const mine = new Set<number>()
    for (let partition = 0; partition < this.#partitions; partition++) {
      if (Math.floor((partition * members.length) / this.#partitions) === nth) mine.add(partition)
    }
    return mine
  }
}

/** The answer to a heartbeat got lost, and it comes again with all that the member has. */
function isRepeat(call: ConsumerCall & { name: "beat" }, member: MemberState): boolean {
  if (call.epoch !== member.previousEpoch || call.owned === undefined) return false
  return call.owned.every(({ partition }) => member.assigned.has(partition) || member.revoking.has(partition))
}

export function seat(partition: number): Seat {
  return { stream: "s", topic: "t", partition, topicId: "id" }
}

export function gone(name: string): MillraceError {
  return new MillraceError("not-assigned", name)
}
