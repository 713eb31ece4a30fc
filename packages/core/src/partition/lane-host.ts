import type { MillraceError } from "@millrace/contract"
import type { Lane } from "./lane.ts"
import type { RecordSource } from "./record-source.ts"
import type { StartPosition } from "./start-position.ts"

/** The consumer around its partitions: what it is told of each, in order. */
export interface LaneHost {
  readonly records: RecordSource
  /** The partition's start is found; reading begins. */
  started(lane: Lane, start: StartPosition): void
  /** There may be something to hand out. */
  offered(lane: Lane): void
  /** Nothing of the partition is handed out until `offered`; what was read ahead is kept. */
  withheld(lane: Lane): void
  /** The record counts as handled, though its error is all that anybody saw of it. */
  passed(lane: Lane, offset: bigint): void
  /** What was read ahead is void. */
  dropped(lane: Lane): void
  /** What was read ahead is void, but not what is handed out. */
  reselected(lane: Lane): void
  advanced(lane: Lane, next: bigint): void
  sourceChanged(lane: Lane, offset: bigint): void
  skipped(lane: Lane, from: bigint, to: bigint): void
  pollFailed(error: MillraceError): void
  /** After every change: callers may be served. */
  changed(): void
}
