import type { MillraceError } from "@millrace/contract"
import { storedRecord } from "../handler/stored-record.ts"
import type { Lane } from "../partition/lane.ts"
import { skipTarget } from "../partition/skip-target.ts"
import type { SettleFailure } from "./batch-settler.ts"
import type { MessageHandling } from "./message-handling.ts"
import { ProcessBatch } from "./process-batch.ts"
import type { LoopParts } from "./process-loop.ts"

/** A batch of the log that cannot be read. */
export interface UnreadBatch {
  readonly lane: Lane
  readonly error: MillraceError
}

/**
 * Stores the dead letter of what cannot be read together with the progress behind it. The partition itself is to be moved there by the caller.
 * @returns why that was not stored; `undefined` once it is, and when the partition has gone meanwhile
 */
export async function buryUnread(
  { client, consumer, settler, counts }: LoopParts,
  { lane, error }: UnreadBatch,
  handling: MessageHandling,
): Promise<SettleFailure | undefined> {
  const { next } = skipTarget(lane)
  const { offset, fault } = error.context
  // What a filter has stopped at can be read past it; of anything else there is nothing but the error.
  const message =
    offset === undefined || fault === undefined
      ? undefined
      : await storedRecord(client.session, { ...lane.partition, lineage: lane.lineage, offset }, () => lane.live)
  if (!lane.live) return undefined
  const content = message === undefined ? "none" : "stored"
  const place = { ...lane.partition, offset }
  const burial = handling.burial({ place, message, content, thrown: error, attempts: 0 })
  const batch = new ProcessBatch()
  batch.took(lane)
  batch.outputs.push({ lane, message: undefined, record: undefined, to: undefined, burial })
  // The reader goes on by itself: what it knows of its progress follows from that.
  batch.offsets = { ...consumer.transactHanded([lane], () => next), committed: () => {} }
  const failure = await settler.settle(batch)
  if (failure === undefined) counts.deadLetters++
  return failure
}
