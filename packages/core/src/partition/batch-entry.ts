/** Where in what was read reading goes on. */
import type { EncodedBatch } from "@millrace/contract"

/** Whether an answer begins at the position: then it is an answer to it, whenever it was asked for. */
export function covers(batches: readonly EncodedBatch[], offset: bigint): boolean {
  return batches.some((batch) => batch.firstOffset <= offset && offset <= batch.lastOffset)
}

/**
 * The first record of the batch at or behind the position and, right after a start by time, that time.
 * @throws CorruptionError when the batch contradicts itself
 */
export function firstWanted(batch: EncodedBatch, position: bigint, fromMicros: bigint | undefined): number {
  const from = batch.firstOffset >= position ? 0 : batch.indexOf(position)
  if (fromMicros === undefined) return from
  for (let index = from; index < batch.count; index++) {
    if (batch.timestampMicros(index) >= fromMicros) return index
  }
  // All are older: the time lay behind the end when it was looked up, and these records came since.
  return from
}
