import type { Handler } from "../handler/handler-context.ts"
import type { RunOptions } from "../handler/run-options.ts"
import type { StartAt } from "../partition/start-at.ts"
import type { ReadOperation } from "../progress/read-operation.ts"
import type { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import type { MessageBatch } from "../record/message-batch.ts"
import type { RentedBatch } from "../record/rented-batch.ts"
import type { ConsumerEvents } from "./consumer-events.ts"
import type { PartitionRef } from "./partition-ref.ts"

/**
 * Reads one partition, or as a member of a group the partitions it is given, message by message: at least once, in order within a
 * partition, fairly among partitions (seed 000, "Consumers, offsets, and commit policies").
 *
 * Asking for a message says that all those handed out before are handled. What is stored of that, and when, is the commit policy's.
 * Calls may overlap: they are served in order. An error does not end a consumer: the next call goes on from where it stood, unless
 * the consumer was shut down or its membership is gone for good.
 *
 * @typeParam M What its messages are: a typed consumer's have values.
 */
export interface Consumer<M extends Message = Message> extends AsyncIterable<M>, AsyncDisposable {
  /**
   * The next message. After `shutdown`: `{ done: true }`.
   * @throws NotFoundError, OffsetOutOfRangeError, CorruptionError … of a partition, in its place behind the messages before it;
   *   FencedError when the membership is gone for good; what an automatic store failed with.
   */
  next(): Promise<IteratorResult<M, undefined>>
  /**
   * The next message, if it comes in time. A message that comes later goes to the next call: none is handed out, and none counts as
   * handled, that the caller did not get (seed 000, "Waiting with a timeout").
   * @param timeoutMs From 0 to 2^31 − 1.
   * @throws TimeoutError at the deadline, CancelledError when the signal fires, ClosedError after `shutdown`; else as `next`.
   */
  nextWithin(timeoutMs: number, options?: { readonly signal?: AbortSignal }): Promise<M>
  /**
   * The messages as an iterable that ends with CancelledError when the signal fires. A loop that is left early (`break`, `return`, an
   * exception) leaves its last message unhandled: only reading on, or `commit`, makes it handled.
   */
  stream(options?: { readonly signal?: AbortSignal }): AsyncIterable<M>
  /**
   * The messages as they are stored together: whole batches of one partition, of at most `batchLength` messages. Each batch is a page:
   * it is handled when the next one is asked for. Ends as `stream` does.
   */
  batches(options?: { readonly signal?: AbortSignal }): AsyncIterable<MessageBatch<M>>
  /**
   * The next batch, to be given back when it was looked at: `using batch = await consumer.receiveRented()`. Like `next` it says that
   * everything handed out before is handled; giving the batch back says nothing about its messages.
   * @throws CancelledError when the signal fires, ClosedError after `shutdown`; else as `next`.
   */
  receiveRented(options?: { readonly signal?: AbortSignal }): Promise<RentedBatch<M>>
  /**
   * Reads a partition on from another place. What was read ahead is thrown away, and what is handed out and not handled will not count as
   * handled by what comes next; what is stored stays. Settles once the place is known; until then nothing of the partition is handed out,
   * and a failure leaves everything as it was. A later call overrules an earlier one.
   * @param partition Its number, or `{ stream, topic, partition }` where several topics of the consumer have one of that number.
   * @param to As `startAt`, with `next` behind what is stored; `"skip"`: past the record or the batch whose error was handed out last, which
   *   counts as handled then.
   * @throws InvalidError for a place that cannot be, `"skip"` without such an error, or a number that several topics have; NotAssignedError,
   *   ClosedError; what the backend fails with
   */
  seek(partition: PartitionRef, to: StartAt | "skip"): Promise<void>
  /**
   * Hands out nothing more of these partitions, and reads no more of them ahead; what was read ahead already waits for `resume`.
   * @param partitions Default: all, and those that are gained later too. The pause of a single one ends when it is lost.
   * @throws NotAssignedError for one that it does not have, ClosedError
   */
  pause(partitions?: readonly PartitionRef[]): void
  /** Goes on with these partitions, in order and without a gap. @param partitions Default: all. @throws as `pause` */
  resume(partitions?: readonly PartitionRef[]): void
  /**
   * Calls a handler for each message, up to `concurrency` at a time, in the order of each partition or key, and counts a message as handled
   * when its handler has returned or its promise was fulfilled. What is stored is the handled prefix of each partition, as the commit policy
   * has it; with `disabled` only `commit` stores. While it runs nobody else can take messages.
   *
   * Resolves once the consumer was shut down, or `context.stop()` was called, and the running handlers have finished. After a failure, and
   * after `stop`, the consumer is open: what was not handled comes again to whoever reads on.
   * @throws MillraceError of kind `handler` for a message whose last attempt failed, with what was thrown as its `cause`; CancelledError
   *   for the signal; TimeoutError when running handlers have not finished in time; what `next` would throw; what a shutdown fails with
   *   that a handler has called; InvalidError for an option, or while somebody else reads
   */
  run(handler: Handler<M>, options?: RunOptions): Promise<void>
  /**
   * Stores the progress of the message's partition through that message, and counts everything up to it as handled. Without an
   * argument: of everything that was handed out. Never moves progress back.
   * @throws NotAssignedError when the partition went to another member, HistoryChangedError when the topic was purged or recreated
   *   since; nothing is stored then. InvalidError for a message of another topic or partition, or without a consumer name.
   */
  commit(what?: Message | Checkpoint): Promise<void>
  /**
   * Says that this one message is handled, whatever comes of those before it: for work in parallel. Progress is what is handled without
   * a gap; the policy stores it, and `disabled` stores it in the background.
   * @throws as `commit`, but for what a store fails with
   */
  mark(what: Message | Checkpoint): void
  /**
   * Finds out what became of a store whose outcome was unknown, under the policy `onRead`, and goes on accordingly: hands out what was read,
   * or stores it again first (seed 001, "Read errors").
   * @param operation `ReadOperation.of(error)` of the error that the partition stopped with.
   * @param options.timeoutMs How long the backend may be asked. Default 5000.
   * @returns whether the store had happened.
   * @throws TimeoutError when nobody answered in time: the operation is still open. InvalidError for an operation that is not open here,
   *   ClosedError, or why the backend does not tell.
   */
  resolve(operation: ReadOperation, options?: { readonly timeoutMs?: number }): Promise<boolean>
  /**
   * Gives such a question up. It undoes nothing: the partition stands still until `seek`, which says where reading goes on.
   * @throws InvalidError for an operation that is not open here, ClosedError
   */
  abandon(operation: ReadOperation): void
  /**
   * Stores `offset` as the last handled record of a partition, forward or back. It does not move what is being read, unless
   * `resetPosition` says so: then reading goes on behind it, and what was read ahead is thrown away.
   * @param partition May be left out where the consumer reads a single one. `{ stream, topic, partition }` where several topics have its number.
   */
  storeOffset(offset: bigint, partition?: PartitionRef, options?: { readonly resetPosition?: boolean }): Promise<void>
  /** Forgets what is stored for a partition. Reading goes on where it stands. */
  deleteOffset(partition?: PartitionRef): Promise<void>
  /** What the backend holds, after the stores that are under way: the last handled record and the partition's newest one. */
  storedOffset(partition?: PartitionRef): Promise<StoredOffset | undefined>
  /** The last message that was handed out. A diagnostic, not a place to resume from. */
  lastConsumedOffset(partition?: PartitionRef): bigint | undefined
  /** The last record that is known to be stored as handled. A diagnostic, not a place to resume from. */
  lastStoredOffset(partition?: PartitionRef): bigint | undefined
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
