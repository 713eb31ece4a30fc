/**
 * Transactions: records of many partitions, and offsets of a consumer, that appear together or not at all (seed 004; table 5.2). Nothing of
 * a transaction is seen by a reader before its commit, unless that reader asks for what is uncommitted and the backend can show it.
 */
import type { AppendResult, Identity, OffsetEntry, OffsetOwner } from "./driver.ts"
import type { TopicPartition } from "./position.ts"

/** A transaction under way. Opaque. */
export interface TransactionHandle {
  readonly transactionalId: string
  readonly token: unknown
}

export interface Transactions {
  /**
   * Begins a new incarnation of the id, and fences the older ones: whatever they ask from here on fails with FencedError. Unfinished work
   * of theirs is aborted, but for what is prepared when `keepPrepared` says so.
   * @param options `timeoutMs`: a transaction that is open for longer is aborted by the backend. A prepared one has no such bound.
   */
  init(
    transactionalId: string,
    options: { readonly timeoutMs: number; readonly keepPrepared: boolean },
  ): Promise<TransactionSession>
  /** Those that are prepared and wait to be completed, whoever prepared them. Where the backend cannot prepare: none. */
  list(): Promise<PreparedTransaction[]>
}

export interface PreparedTransaction {
  readonly transactionalId: string
  /** What `complete` takes, in a session of that id that kept it. */
  readonly token: string
  /** Since it was prepared. By the wall clock of whoever asks, never negative. */
  readonly ageMs: number
  /** Absent where the backend does not tell. */
  readonly records?: number
}

/** One incarnation. One transaction at a time; the core sees to that, and to the order of the calls. */
export interface TransactionSession {
  /** What batches of the transaction under way carry. May change with each `begin`; while it is the same, sequences go on. */
  readonly identity: Identity
  /** The token of a transaction that was prepared before and kept; `undefined` once it is completed. */
  readonly prepared: string | undefined
  /** Asked again only after a rejection. @throws FencedError */
  begin(): Promise<TransactionHandle>
  /**
   * The offsets are stored when the transaction commits. A later entry of the same partition replaces the earlier one.
   * @throws NotAssignedError for a claim that is void (also later, from `commit` and `prepare`), HistoryChangedError, NotFoundError; the transaction must be aborted then
   */
  enlistOffsets(handle: TransactionHandle, owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<void>
  /**
   * The transaction survives its owner from here on, and can only be committed or aborted. Nobody may store or load the offsets that it
   * holds before it ended: that fails with a retryable error that names it. Asked again only after a rejection.
   * @returns the token, for a coordinator to keep
   */
  prepare(handle: TransactionHandle): Promise<string>
  /**
   * All of it, or none: one answer for each batch that was staged, in the order of the appends.
   * @throws TransactionAbortedError when the backend has aborted it, FencedError; outcome unknown: ask again, which is answered like the first time
   */
  commit(handle: TransactionHandle): Promise<readonly StagedResult[]>
  /** Nothing of it was ever there. One that is aborted already stays so. */
  abort(handle: TransactionHandle): Promise<void>
  /** Commits what was prepared under this token; aborts what was prepared under another. @throws TransactionStateError when nothing is prepared */
  complete(token: string): Promise<"committed" | "aborted">
  /** An open transaction is aborted, a prepared one stays. */
  close(): Promise<void>
}

/** What became of one staged batch. */
export interface StagedResult extends TopicPartition, AppendResult {
  readonly count: number
}
