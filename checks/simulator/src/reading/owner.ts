import type { OffsetOwner } from "@millrace/contract"
import type { ConsumerOptions } from "@millrace/core"

/** What counts as handled for an owner, and with that what a crash may do. */
export type Semantics =
  /** Asking for more, `commit`, or the handler of `run`: at least once. */
  | "asking"
  /** Only `commit` and `mark`: at least once. */
  | "marks"
  /** The hand-out itself: what is handed out and stored may be lost in a crash. */
  | "delivery"
  /** Stored before it is handed out: at most once. */
  | "onRead"

/** Programs that share their progress: those with one consumer name, or the members of a group. */
export interface Owner {
  readonly id: number
  readonly of: OffsetOwner
  /** Topics that are read; a named consumer reads `partition` of the first. */
  readonly topics: readonly string[]
  readonly partition: number | undefined
  readonly semantics: Semantics
  readonly options: ConsumerOptions
  /** Whether its policy stores what was handled by itself, at the end and before a partition goes. */
  readonly stores: boolean
  /** Of a group: what its members join with. */
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
  /** Absent: nobody looks how long a message is in hand. */
  readonly handlerTimeoutMs: number | undefined
}
