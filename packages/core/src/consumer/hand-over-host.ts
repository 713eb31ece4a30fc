import type { MillraceError } from "@millrace/contract"
import type { Lane, Slice } from "../partition/lane.ts"

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
  /** Whether a store must come first (policy `each`). */
  readonly held: boolean
  /** How many records may be handed out before the policy must hear of it. */
  readonly window: number
}
