import type { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import type { ConsumerEvents } from "./consumer-events.ts"

/**
 * Reads one partition, or as a member of a group the partitions it is given, message by message: at least once, in order within a
 * partition, fairly among partitions (seed 000, "Consumers, offsets, and commit policies").
 *
 * Asking for a message says that all those handed out before are handled. What is stored of that, and when, is the commit policy's.
 * Calls may overlap: they are served in order. An error does not end a consumer: the next call goes on from where it stood, unless
 * the consumer was shut down or its membership is gone for good.
 */
export interface Consumer extends AsyncIterable<Message>, AsyncDisposable {
  /**
   * The next message. After `shutdown`: `{ done: true }`.
   * @throws NotFoundError, OffsetOutOfRangeError, CorruptionError … of a partition, in its place behind the messages before it;
   *   FencedError when the membership is gone for good; what an automatic store failed with.
   */
  next(): Promise<IteratorResult<Message, undefined>>
  /**
   * The next message, if it comes in time. A message that comes later goes to the next call: none is handed out, and none counts as
   * handled, that the caller did not get (seed 000, "Waiting with a timeout").
   * @param timeoutMs From 0 to 2^31 − 1.
   * @throws TimeoutError at the deadline, CancelledError when the signal fires, ClosedError after `shutdown`; else as `next`.
   */
  nextWithin(timeoutMs: number, options?: { readonly signal?: AbortSignal }): Promise<Message>
  /**
   * The messages as an iterable that ends with CancelledError when the signal fires. A loop that is left early (`break`, `return`, an
   * exception) leaves its last message unhandled: only reading on, or `commit`, makes it handled.
   */
  stream(options?: { readonly signal?: AbortSignal }): AsyncIterable<Message>
  /**
   * Stores the progress of the message's partition through that message, and counts everything up to it as handled. Without an
   * argument: of everything that was handed out. Never moves progress back.
   * @throws NotAssignedError when the partition went to another member, HistoryChangedError when the topic was purged or recreated
   *   since; nothing is stored then. InvalidError for a message of another topic or partition, or without a consumer name.
   */
  commit(what?: Message | Checkpoint): Promise<void>
  /**
   * Stores `offset` as the last handled record of a partition, forward or back. It does not move what is being read, unless
   * `resetPosition` says so: then reading goes on behind it, and what was read ahead is thrown away.
   * @param partition May be left out where the consumer reads a single one.
   */
  storeOffset(offset: bigint, partition?: number, options?: { readonly resetPosition?: boolean }): Promise<void>
  /** Forgets what is stored for a partition. Reading goes on where it stands. */
  deleteOffset(partition?: number): Promise<void>
  /** What the backend holds, after the stores that are under way: the last handled record and the partition's newest one. */
  storedOffset(partition?: number): Promise<StoredOffset | undefined>
  /** The last message that was handed out. A diagnostic, not a place to resume from. */
  lastConsumedOffset(partition?: number): bigint | undefined
  /** The last record that is known to be stored as handled. A diagnostic, not a place to resume from. */
  lastStoredOffset(partition?: number): bigint | undefined
  /** How far each partition's stored progress is behind its end; without a consumer name, how far reading is. */
  lag(): Promise<Lag[]>
  /** Tells what happens to partitions. A listener that throws fails the next read. Disposing the answer ends it. */
  on(listener: Partial<ConsumerEvents>): Disposable
  /**
   * Stops reading, stores the handled prefix as the policy has it, and leaves the group. The last message that was handed out counts
   * as handled, unless its loop was left early. May be called from the loop's own body: it does not wait for it. The second call
   * awaits the first.
   *
   * Leaving the scope of `await using`, or closing the client, does the same, except that the last message does not count: an
   * exception may be what ends the scope.
   * @param options.timeoutMs The most that storing takes. Default 5000.
   * @throws TimeoutError when storing takes longer, or what it failed with; everything is released even so.
   */
  shutdown(options?: { readonly timeoutMs?: number }): Promise<void>
}

/** Stored progress in the seed's words: offsets of the last handled record, and of the partition's newest. */
export interface StoredOffset {
  readonly stored: bigint
  readonly current: bigint
}

/** How far a partition's progress is behind. */
export interface Lag {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  /** The last record stored as handled; absent when nothing is stored. */
  readonly storedOffset: bigint | undefined
  /** The offset that the next record will get. */
  readonly end: bigint
  /** Offsets between the progress and the end: with holes, an upper bound of the records. */
  readonly lag: bigint
}
