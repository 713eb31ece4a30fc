import type { Position, Session } from "@millrace/contract"
import { readLogRange } from "../client/log-range.ts"
import { BatchMessage } from "../record/message.ts"

/**
 * The record at a position as it lies in the log, past any filter and encryption; `undefined` when it is not there any more, or cannot be
 * read.
 * @param needed Asked between two polls: whether somebody still wants it.
 * @throws what a poll as a whole fails with
 */
export async function storedRecord(
  session: Session,
  position: Position,
  needed: () => boolean,
): Promise<BatchMessage | undefined> {
  const { offset, ...place } = position
  const end = offset + 1n
  let found: BatchMessage | undefined
  await readLogRange(
    session,
    { from: position, end, enough: () => found !== undefined || !needed() },
    (batch, index) => {
      if (found === undefined && batch.offset(index) === offset) {
        found = new BatchMessage({ batch, ...place, claim: undefined, end }, index)
      }
    },
  )
  return found
}
