/** What a claim of a Kafka group stands for: a partition of one incarnation of a topic, as long as one member has it. */

/** How a member proves itself to the coordinator. */
export interface Fence {
  readonly memberId: string
  /** The member's epoch (KIP-848) or the group's generation (classic). */
  readonly generation: number
  readonly instanceId: string | undefined
}

/** Whoever gave claims out, and knows which are still good. */
export interface ClaimHolder {
  readonly group: string
  /** `undefined` when the claim was released or lost, or its member is gone. */
  fence(claim: number): Fence | undefined
}

/** The token of a `Claim`. Its holder gives out each number once. */
export class ClaimToken {
  readonly holder: ClaimHolder
  readonly number: number
  /** The id of the topic that the claim speaks of: a recreated topic has another. */
  readonly topicId: string

  constructor(holder: ClaimHolder, number: number, topicId: string) {
    this.holder = holder
    this.number = number
    this.topicId = topicId
  }
}
