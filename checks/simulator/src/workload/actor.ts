import type { Lane } from "./history.ts"

/** Something that uses the client: a producer of one of the ways to write, with its options from the seed. */
export interface Actor {
  readonly lane: Lane
  /** Makes one call. It waits for nothing. */
  step(): void
  /** Shuts down, within this many ms; when that was done before, tells how it went. */
  end(timeoutMs: number): Promise<void>
  /** Whether it tells its failures to the first alone that shuts it down, so that this must not be the client. */
  readonly endsFirst?: boolean
  /** When all is over: what the actor itself knows to be wrong. */
  check?(): void
}
