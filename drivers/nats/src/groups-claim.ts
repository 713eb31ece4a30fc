/** The token of a claim on NATS: what a membership gives out, and what an offset is stored under. */
import type { Claim, Lineage } from "@millrace/contract"
import type { OwnClaim } from "./groups-view.ts"
import type { ClaimMark } from "./offsets-entry.ts"

/** One member's right to one partition. */
export class GroupClaimToken {
  readonly groupName: string
  readonly lineage: Lineage
  readonly mark: ClaimMark
  #isVoid = false

  constructor(groupName: string, lineage: Lineage, mark: ClaimMark) {
    this.groupName = groupName
    this.lineage = lineage
    this.mark = mark
  }

  /** Released, lost or left: known to this process, so that nobody need be asked. A claim that is not void may be fenced all the same. */
  get isVoid(): boolean {
    return this.#isVoid
  }

  void(): void {
    this.#isVoid = true
  }
}

/** The contract's claim. */
export function claimOf({ stream, topic, partition }: OwnClaim, token: GroupClaimToken): Claim {
  return { stream, topic, partition, token }
}

/** The token of a claim, `undefined` when another driver made it. */
export function tokenOf(claim: Claim): GroupClaimToken | undefined {
  return claim.token instanceof GroupClaimToken ? claim.token : undefined
}
