import type { OffsetEntry, OffsetOwner, Session } from "@millrace/contract"

/** A consumer's progress as a transaction stores it. */
export interface TransactedOffsets {
  readonly owner: OffsetOwner
  /** One a partition. */
  readonly entries: readonly OffsetEntry[]
  /**
   * To be awaited before they are enlisted: settles when no store of the consumer's own is on its way any more that would come behind the
   * commit and undo it. Until then nothing more of these partitions is stored otherwise.
   */
  ready(): Promise<void>
  /** Whether the partition of an entry is still read as it was then: under the same claim, in the same history. */
  isOurs(index: number): boolean
  /** The transaction has committed: what the consumer knows of its progress follows. */
  committed(): void
}

/** A consumer whose progress a transaction can store. The consumers of this package are such, and what wraps one may be. */
export interface OffsetSource {
  /** Of the connection that the consumer reads from. */
  readonly offsetSession: Session
  /**
   * The progress behind these messages, for a transaction to store.
   * @throws InvalidError for a consumer without a name, or one that stores by itself; NotAssignedError, HistoryChangedError for a message that
   *   is not this consumer's any more
   */
  transact(what: readonly unknown[]): TransactedOffsets
}

/** Whether it is a consumer, of whatever kind, whose progress a transaction can store. */
export function isOffsetSource(value: unknown): value is OffsetSource {
  return typeof (value as Partial<OffsetSource> | undefined)?.transact === "function"
}
