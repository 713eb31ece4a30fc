import type { TopicPartition } from "@millrace/contract"
import type { Requests } from "./requests.ts"

/** What a claim asks of the membership that gave it out. */
export interface ClaimKeeper {
  readonly group: string
  /**
   * Runs a change of the offset in the member's own session.
   * @throws NotAssignedError when the claim is void, here or on the server
   */
  commit(claim: GroupClaim, change: (requests: Requests) => Promise<void>): Promise<void>
}

/** The fencing token of one partition. It is good until it was released, lost, or its member has left; the server checks the owner besides. */
export class GroupClaim {
  readonly place: TopicPartition
  readonly #keeper: ClaimKeeper

  constructor(place: TopicPartition, keeper: ClaimKeeper) {
    this.place = place
    this.#keeper = keeper
  }

  covers(group: string, { stream, topic, partition }: TopicPartition): boolean {
    const { place } = this
    return (
      this.#keeper.group === group && place.stream === stream && place.topic === topic && place.partition === partition
    )
  }

  commit(change: (requests: Requests) => Promise<void>): Promise<void> {
    return this.#keeper.commit(this, change)
  }
}
