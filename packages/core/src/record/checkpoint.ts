import type { Claim, Lineage } from "@millrace/contract"

/**
 * Where a message stood, with what a later commit of it needs: the history it belongs to and the claim under which it was read
 * (seed 001, "Consumer": a checkpoint keeps the partition history and ownership that delivered the message). Small, and free of
 * the message's bytes: keep a checkpoint instead of a message when only the commit is still to come.
 */
export class Checkpoint {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  /** The offset of the message itself, not the next one. */
  readonly offset: bigint
  /** Opaque. A commit is refused with HistoryChangedError once the topic has another history. */
  readonly lineage: Lineage
  /** Opaque. Absent outside groups. A commit is refused with NotAssignedError once the partition is another member's. */
  readonly claim: Claim | undefined

  /** Made by `message.checkpoint()`. */
  constructor(place: CheckpointPlace, offset: bigint) {
    this.stream = place.stream
    this.topic = place.topic
    this.partition = place.partition
    this.offset = offset
    this.lineage = place.lineage
    this.claim = place.claim
  }
}

/** The partition, history and claim that a checkpoint remembers. */
export interface CheckpointPlace {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  readonly lineage: Lineage
  readonly claim: Claim | undefined
}
