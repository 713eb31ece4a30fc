/**
 * Work queues: messages of a topic that are handed out one by one, each to one taker at a time, and settled one by one (seed 003; tables
 * 4.2 to 4.4). A queue stands over a topic and reads all of its partitions; several queues of one topic know nothing of each other.
 */
import type { MillraceError } from "./error.ts"
import type { Anchor, Position, TopicName } from "./position.ts"
import type { EncodedBatch } from "./record.ts"

export interface QueueBroker {
  /**
   * Opens a work queue over a topic, and makes it when it does not exist. One that exists keeps what it was made with.
   * @throws InvalidError when it exists with other settings: the message names them (`startAt` is not among them, since it counts for a queue
   *   that is made). NotFoundError for the topic
   */
  open(topic: TopicName, queue: string, spec: QueueSpec): Promise<QueueSession>
  /** @throws NotFoundError for the topic or the queue */
  describe(topic: TopicName, queue: string): Promise<QueueDescription>
  /** Those of one topic, by name. @throws NotFoundError for the topic */
  list(topic: TopicName): Promise<QueueDescription[]>
  /** Forgets the queue and all that it knows; sessions on it fail with NotFoundError. The topic stays as it is. @throws NotFoundError */
  delete(topic: TopicName, queue: string): Promise<void>
}

export interface QueueSpec {
  /** How long a message that was handed out is waited for, before it is handed out again. */
  readonly ackWaitMs: number
  /** In place of `ackWaitMs`: the wait of each delivery, the last one's for all that follow. Empty: none. */
  readonly backoffMs: readonly number[]
  /**
   * How often a message is handed out to be worked on. Absent: without end. After the last one's wait, or when that is naked, it is
   * handed out with higher delivery numbers, each of which is an invitation to bury it: `terminate` ends them.
   */
  readonly maxDeliver?: number
  /** The most messages that are handed out and not settled, of the whole queue. Absent: no bound. `none` needs no such bound. */
  readonly maxAckPending?: number
  /**
   * Whether each message is settled by itself, an ack covers all that were handed out of its partition before it, or handing out settles.
   */
  readonly ackPolicy: AckPolicy
  /** Where a queue that is made begins in each partition that the topic has now. Partitions that come later begin at their first record. */
  readonly startAt: QueueStart
}

export type AckPolicy = "none" | "all" | "explicit"

export type QueueStart = Anchor | { readonly kind: "offset"; readonly value: bigint }

export interface QueueDescription extends TopicName {
  readonly queue: string
  readonly spec: QueueSpec
  /** Records of the topic that were never handed out, as far as offsets tell. */
  readonly undelivered: bigint
  /** Handed out and not settled. */
  readonly ackPending: number
  /** Of messages that are not settled: those that were handed out more than once, or wait to be. */
  readonly redelivered: number
  /** Naked, or overdue, and not yet handed out again. */
  readonly delayed: number
  /** Absent where the backend does not tell. */
  readonly createdMicros?: bigint
  /** By partition: all below `floor` is settled, nothing from `next` on was handed out yet. */
  readonly partitions: readonly { readonly partition: number; readonly floor: bigint; readonly next: bigint }[]
}

export interface QueuePullLimits {
  readonly maxMessages: number
  /** Of payloads, keys and headers. A first message above it comes alone. */
  readonly maxBytes: number
  /** 0: answer what is there. */
  readonly maxWaitMs: number
}

/**
 * One taker. Closing it settles nothing: what it holds comes back to the queue when its wait is over. What a pull was just being answered
 * with is given back at once where the driver can.
 */
export interface QueueSession {
  /** As the queue was made. */
  readonly spec: QueueSpec
  /**
   * Messages for this taker, as soon as there are any; `[]` when the wait is over, and early also otherwise. What is to be handed out again goes before what was
   * never handed out; under the policy `all` what comes again of a partition comes in the order of offsets. Several pulls may wait at once. The wait of a message counts from the answer, or from shortly before. A batch that is
   * damaged keeps back its own messages alone; a pull that finds nothing else fails with CorruptionError.
   * @throws NotFoundError when the queue or the topic is gone, HistoryChangedError never: a purge takes the messages out of the queue
   */
  pull(limits: QueuePullLimits): Promise<QueueDelivery[]>
  /**
   * One outcome a settlement, in order. `true`: it counts. `false`: the message was settled before, or it is another delivery's by now.
   * Of a record that was trimmed or has expired meanwhile either may be answered.
   * With `confirm` the answer comes once that has the durability of the topic's offsets; without, a crash of the machine may undo it.
   * @throws NotFoundError when the queue or the topic is gone
   */
  settle(list: readonly Settlement[], options: { readonly confirm: boolean }): Promise<(boolean | MillraceError)[]>
  /** A pending pull answers `[]`. */
  close(): Promise<void>
}

/** One message, handed out. Deliveries of neighbouring records may share a batch. */
export interface QueueDelivery extends Position {
  readonly batch: EncodedBatch
  /** Of the message within the batch. */
  readonly index: number
  /** 1 at the first delivery. */
  readonly deliveries: number
  /** The driver's name of this delivery. Nobody else looks into it. */
  readonly token: unknown
}

export interface Settlement {
  readonly token: unknown
  /**
   * `ack`: it is done; with policy `all` so is everything of its partition with a smaller offset that was handed out, also what was naked.
   * `nak`: hand it out again, after `delayMs`. `inProgress`: its wait begins anew. `terminate`: never hand it out
   * again, though it is not done.
   */
  readonly verdict: "ack" | "nak" | "inProgress" | "terminate"
  /** Of a nak. Default 0. */
  readonly delayMs?: number
  /** Of a termination, for people. */
  readonly reason?: string
}
