import type { Lag } from "../consumer/consumer.ts"
import type { ConsumerEvents } from "../consumer/consumer-events.ts"
import type { StartAt } from "../partition/start-at.ts"
import type { Message } from "../record/message.ts"
import type { MatchedPage } from "./page-ledger.ts"

/**
 * Reads a group's partitions in pages and acknowledges them in any order (`topic.consumerGroup(name).reader`, table 1.13). What is stored
 * of each partition is the acknowledged prefix: it never passes a message that was handed out and not acknowledged, and it covers what the
 * group's filter left out. Stores are fenced by the membership. What is not acknowledged comes again, to whoever reads the partition next.
 */
export interface GroupReader<M extends Message = Message> extends AsyncIterable<MatchedPage<M>>, AsyncDisposable {
  /**
   * The next page, as soon as there is one. After `shutdown`: `{ done: true }`. Calls may overlap: they are served in order.
   * @throws BufferFullError while `unackedPages` pages are not acknowledged in full; else what a consumer's `next` throws, behind the pages
   *   before it
   */
  next(): Promise<IteratorResult<MatchedPage<M>, undefined>>
  /** The next page, or `undefined` when none comes within `idleMs`. @throws ClosedError after `shutdown`; else as `next` */
  poll(): Promise<MatchedPage<M> | undefined>
  /**
   * The next page, if it comes in time. One that comes later goes to the next call.
   * @param timeoutMs From 0 to 2^31 − 1.
   * @throws TimeoutError at the deadline, CancelledError when the signal fires, ClosedError after `shutdown`; else as `next`
   */
  nextWithin(timeoutMs: number, options?: { readonly signal?: AbortSignal }): Promise<MatchedPage<M>>
  /** The pages as an iterable that ends with CancelledError when the signal fires. */
  stream(options?: { readonly signal?: AbortSignal }): AsyncIterable<MatchedPage<M>>
  /**
   * The message is handled. Settles once the progress that this makes possible is stored; at once while an earlier message of the partition
   * is not acknowledged. Again, it does nothing.
   * @throws NotAssignedError when the partition went to another member, HistoryChangedError when the topic was purged or recreated since,
   *   InvalidError for a message that this reader has not handed out, or not since `seek`; what storing fails with
   */
  ack(message: Message): Promise<void>
  /** Every message of the partition that was handed out up to this one is handled. Else as `ack`. */
  ackThrough(message: Message): Promise<void>
  /** Every message of the page is handled. Else as `ack`. */
  ackPage(page: MatchedPage): Promise<void>
  /** How many pages were handed out and are not acknowledged in full. */
  readonly unacked: number
  /** How far each partition's stored progress is behind its end. */
  lag(): Promise<Lag[]>
  /** Reads on elsewhere in a partition, or past the record whose error came last. What was handed out of it can no longer be acknowledged. */
  seek(partition: number, to: StartAt | "skip"): Promise<void>
  /** Tells what happens to partitions. A listener that throws fails the next read. Disposing the answer ends it. */
  on(listener: Partial<ConsumerEvents>): Disposable
  /**
   * Stops reading, stores what is acknowledged, and leaves the group. The second call awaits the first. Leaving the scope of `await using`
   * does the same.
   * @param options.timeoutMs The most that storing takes. Default 5000.
   * @throws TimeoutError when storing takes longer, or what it failed with; everything is released even so
   */
  shutdown(options?: { readonly timeoutMs?: number }): Promise<void>
}
