import type { Lineage, TopicPartition } from "@millrace/contract"
import type { BatchMessage } from "../record/message.ts"

/** What the runner needs to know of a partition that messages come from. */
export interface FeedLane {
  readonly partition: TopicPartition
  /** The history that is being read. */
  readonly lineage: Lineage
  /** Until the partition is lost or the consumer has ended. */
  readonly live: boolean
  /** It is about to go to another member: nothing more of it is to start. */
  readonly draining: boolean
  /** Nothing of it is to be handed out, because the user says so. */
  readonly paused: boolean
}

/** What the handler runner stands on: messages without any acknowledgement but the explicit one. The consumer's `HandlerFeed` is one. */
export interface MessageFeed {
  /**
   * The next message of a partition that is not held; `undefined` when there is none now, or none any more.
   * @throws what `consumer.next` would throw; `lane` then tells whose error it is
   */
  take(): BatchMessage | undefined
  /** The partition of what `take` answered last, or failed with; absent for an error that is no partition's own. */
  readonly lane: FeedLane | undefined
  /** The record that `take` failed for, as it is stored; absent for any error but that of a single record. */
  readonly failed: BatchMessage | undefined
  /** No message of the partition is taken until it is freed. */
  hold(lane: FeedLane): void
  free(lane: FeedLane): void
  /** This one message is handled. Ignored once the partition is gone. */
  handled(lane: FeedLane, offset: bigint): void
  /** Goes past the batch whose error the partition has shown last. What is open of the partition counts no more. */
  skip(lane: FeedLane): Promise<void>
  /** Whether the consumer was shut down. */
  readonly ended: boolean
  /** Gives reading back. Partitions with something unhandled go back to the first such message. */
  release(): void
}

/** What the runner is told by the consumer, at once when it happens. */
export interface FeedUser {
  /** `take` may have something again, a paused partition goes on, or the consumer has ended. */
  ready(): void
  /** What was taken of the partition counts no more: it is gone, was seeked, or has a new history. */
  dropped(lane: FeedLane): void
  /** Whether something of the partition is being worked on, and does not merely wait for its turn. */
  working(lane: FeedLane): boolean
  /** The partition is about to go to another member. Settles once nothing of it runs. */
  draining(lane: FeedLane): Promise<void> | undefined
  /**
   * The consumer shuts down: nothing more may start. Settles once nothing runs but the handler that calls, if it is one that does.
   * @throws TimeoutError at the deadline
   */
  ending(timeoutMs: number): Promise<void>
}
