import type { CorruptionError, DecodeError, UnsupportedError } from "@millrace/contract"
import type { Message, Position } from "../record/message.ts"

/**
 * What a cursor gives: a record, one that does not decode, bytes of the log that cannot be read, or the news that it is caught up. A typed
 * reader gives a `tombstone` for a record without a payload, which has no value to decode; the raw cursor gives it as a record like any
 * other.
 */
export type CursorResult<T> =
  | { readonly kind: "record"; readonly value: T; readonly message: Message }
  | { readonly kind: "tombstone"; readonly message: Message }
  | {
      readonly kind: "error"
      /**
       * Of a record: that it does not decode (a typed reader's is a `TypedDecodeError`, with the bytes), does not decrypt, or contradicts
       * itself. Of a whole batch: that it is damaged, or needs what is not there; the next read goes past it.
       */
      readonly error: DecodeError | CorruptionError | UnsupportedError
      readonly position: Position
    }
  | { readonly kind: "end" }

/**
 * Reads every partition of a topic, with offsets of its own that nobody else sees (seed 000, "Typed handles and readers"; table 1.7). It
 * starts at offset 0 unless saved offsets are restored; retention may have removed the first records.
 *
 * One poll drains each partition to its tail, up to 10,000 records each, and gives the records in the order of their log times. A topic
 * that does not exist reads as empty. When the topic was purged or recreated, the new history is read from its start.
 */
export interface Cursor<T> extends AsyncDisposable {
  /**
   * The next record; `{ kind: "end" }` once caught up. A later call looks again.
   * @throws what a poll failed with, after five tries if it might have passed. The offsets stay as they were.
   */
  next(): Promise<CursorResult<T>>
  /**
   * What an earlier poll has left over, or else one poll. Empty when caught up.
   * @throws as `next`; with records before what failed, these are the answer, and the next read throws
   */
  poll(): Promise<CursorResult<T>[]>
  /** All records up to the tail: ends once caught up. */
  stream(): AsyncIterable<CursorResult<T>>
  /**
   * The next record, also one that is yet to come. Never `{ kind: "end" }`.
   * @param timeoutMs From 0 to 2^31 − 1.
   * @throws TimeoutError at the deadline; else as `next`
   */
  nextWithin(timeoutMs: number): Promise<CursorResult<T>>
  /**
   * The next offset of each partition, behind the records that were given out. Empty until the first poll, or until `restore`. Save it
   * to go on later.
   */
  readonly offsets: ReadonlyMap<number, bigint>
  /**
   * Goes on from saved offsets. They replace what was there: a partition that is missing begins at 0.
   * @throws InvalidError for an offset that is not a bigint from 0.
   */
  restore(offsets: ReadonlyMap<number, bigint>): void
}
