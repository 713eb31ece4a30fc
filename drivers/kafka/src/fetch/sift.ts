/** What of a partition's records is for the reader: control batches, and with `committed` the records of aborted transactions, are not. */
import type { TopicPartition } from "@millrace/contract"
import type { FetchResponseAbortedTransaction } from "../protocol/messages.generated.ts"
import { readBatches } from "../records/read-batches.ts"
import { AbortedTransactions } from "./aborted-transactions.ts"
import type { QueuedBatch } from "./slot.ts"

/** What was asked for, and what the broker says about transactions in the answer. */
export interface SiftOptions {
  readonly place: TopicPartition
  /** The offset that was asked for. The first batch may begin before it; batches that end before it are left out. */
  readonly from: bigint
  /** The aborted transactions that touch this answer, as the broker lists them for `committed`; absent leaves everything in. */
  readonly aborted?: readonly FetchResponseAbortedTransaction[]
}

/** The yield of one partition's records. */
export interface Sifted {
  readonly batches: readonly QueuedBatch[]
  /** Behind everything that was looked at; the offset asked for when there was nothing. */
  readonly next: bigint
  /** What ended it early: CorruptionError, UnsupportedError. The batches before are right. */
  readonly error: unknown
}

/** Sifts the records of one partition of one answer. */
export function sift(records: Uint8Array, { place, from, aborted }: SiftOptions): Sifted {
  const { batches, error } = readBatches(records, place)
  const transactions = aborted === undefined ? undefined : new AbortedTransactions(aborted)
  const kept: QueuedBatch[] = []
  let next = from
  for (const batch of batches) {
    const hidden = transactions?.hides(batch) ?? batch.control
    if (batch.nextOffset <= from) continue
    if (batch.nextOffset > next) next = batch.nextOffset
    if (!hidden && batch.count > 0) {
      kept.push({ batch, next })
      continue
    }
    const last = kept.at(-1)
    if (last !== undefined) kept[kept.length - 1] = { batch: last.batch, next }
  }
  return { batches: kept, next, error }
}
