import type { LogReader, ReaderOptions, Session } from "@millrace/contract"

/** Where the records of a consumer come from: the log as it is, or what a filter selects of it. */
export interface RecordSource {
  /** A reader as the source is now. Readers that were opened before stay as they are. */
  openReader(options: ReaderOptions): LogReader
  /** Whether records may be missing between others by right. */
  readonly holes: boolean
  /** Partitions came to the consumer after its start. */
  gained(): void
  /** The consumer has ended. */
  close(): void
}

/** Everything that the log holds. */
export function wholeLog({ log, manifest }: Session): RecordSource {
  const { holes } = manifest.read
  return { openReader: (options) => log.openReader(options), holes, gained: () => {}, close: () => {} }
}
