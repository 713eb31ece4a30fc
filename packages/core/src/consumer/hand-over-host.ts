import type { DecodeError, MillraceError } from "@millrace/contract"
import type { Lane, Slice } from "../partition/lane.ts"
import type { BatchMessage } from "../record/message.ts"

/** What a consumer does about what happens in its hand-over. */
export interface HandOverHost {
  /** The handled prefix of the partition has moved; `count` messages were handled since the last time. */
  handled(lane: Lane, count: number): void
  /** Somebody begins to wait for something to be handed out. */
  waited(): void
  /** The next page is asked for, while something of these partitions is handed out and not handled. */
  pollStarted(open: readonly Lane[]): void
  /** A slice was handed out in full, or thrown away. */
  finished(slice: Slice): void
  /** The partition's error was handed out. */
  errorTaken(lane: Lane, error: MillraceError): void
  /** Whether the records can be opened now. If not, the partition is offered again once they can. */
  prepared(lane: Lane, slice: Slice): boolean
  /**
   * What becomes of a record that cannot be decrypted or decoded: its error is `told` to the caller, it is `passed` over as handled, or it is
   * looked at again `later`, once `deal` has done its work: the partition is offered again then.
   */
  fateOf(lane: Lane, message: BatchMessage, error: DecodeError): "told" | "passed" | "later"
  deal(lane: Lane, message: BatchMessage, error: DecodeError): void
  /** The record counts as handled, and nobody got it. @param error Absent when `deal` has had it. */
  passedOver(lane: Lane, message: BatchMessage, error: DecodeError | undefined): void
  /** Whether a store must come first (policy `each`). */
  readonly held: boolean
  /** How many records may be handed out before the policy must hear of it. */
  readonly window: number
}
