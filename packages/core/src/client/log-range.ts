import type { EncodedBatch, MillraceError, Position, Session } from "@millrace/contract"

const pageRecords = 10_000
const pageBytes = 1_048_576
const pageWaitMs = 250

/** Which records of a partition to read, all of which are there already. */
export interface LogRange {
  readonly from: Position
  /** The offset to stop before. */
  readonly end: bigint
  /** Asked between two polls: whether to stop early. */
  readonly enough: () => boolean
}

/** How far a range was read. */
export interface RangeRead {
  /** The offset behind the last one that was looked at. */
  readonly next: bigint
  /** Why the partition could not be read on: it was deleted, purged or trimmed meanwhile, or is damaged. */
  readonly error: MillraceError | undefined
}

/**
 * Shows the records of a range in the order of the log, committed ones only. `visit` gets records behind `end` too when they come with
 * those before it.
 * @throws what a poll as a whole fails with
 */
export async function readLogRange(
  session: Session,
  range: LogRange,
  visit: (batch: EncodedBatch, index: number) => void,
): Promise<RangeRead> {
  let next = range.from.offset
  if (next >= range.end) return { next, error: undefined }
  const reader = session.log.openReader({ isolation: "committed" })
  try {
    reader.set([range.from])
    while (next < range.end && !range.enough()) {
      const limits = { maxRecords: pageRecords, maxBytes: pageBytes, minRecords: 1, maxWaitMs: pageWaitMs }
      for (const read of await reader.next(limits)) {
        if (read.error !== undefined) return { next, error: read.error }
        for (const batch of read.batches) {
          // A batch may begin before the position that was asked for.
          for (let index = batch.indexOf(next); index < batch.count; index++) visit(batch, index)
        }
        next = read.nextOffset
      }
    }
    return { next, error: undefined }
  } finally {
    await reader.close()
  }
}
