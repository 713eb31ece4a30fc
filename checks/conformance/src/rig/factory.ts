import type { ConnectTarget, Driver } from "@millrace/contract"

/** What the suite needs to know of a driver under test. */
export interface DriverUnderTest {
  readonly driver: Driver
  /** A target that nobody has used before: every suite begins on an empty backend, or on names of its own. */
  target(): ConnectTarget | Promise<ConnectTarget>
  /** Why two sessions on one target see different data; absent where they share it. Tests that need two sessions are skipped with it. */
  readonly isolated?: string
  /** Settings of a topic (`native`) with which retention shows within seconds, and how large the records of such a test must be. */
  readonly eagerRetention?: { readonly native: Readonly<Record<string, unknown>>; readonly recordBytes: number }
  /** The most partitions of one topic that this server can bear; absent: the manifest's. */
  readonly mostPartitions?: number
  /** Removes what `target` made. Called once, after every session is closed. */
  cleanup(): Promise<void>
}
