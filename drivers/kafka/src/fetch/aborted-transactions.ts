import type { FetchResponseAbortedTransaction } from "../protocol/messages.generated.ts"

/** What is asked of a batch to know whether its transaction was aborted. */
export interface MarkedBatch {
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  readonly control: boolean
  readonly transactional: boolean
  readonly producerId: bigint
  /** Of a control batch: which marker it is. */
  key(index: number): Uint8Array | null
}

/** The type of the marker that ends an aborted transaction (EndTransactionMarker, KIP-98). */
const abortMarker = 0

/**
 * Follows through one answer which producers are inside of an aborted transaction. One producer may have several in one answer, and a
 * transaction whose marker lies behind the answer stays aborted to its end. Each answer has a list of its own, so nothing is kept
 * between answers.
 */
export class AbortedTransactions {
  /** The last begins first. */
  readonly #coming: FetchResponseAbortedTransaction[]
  readonly #inside = new Set<bigint>()

  constructor(aborted: readonly FetchResponseAbortedTransaction[]) {
    this.#coming = aborted.toSorted((one, other) =>
      one.firstOffset < other.firstOffset ? 1 : one.firstOffset > other.firstOffset ? -1 : 0,
    )
  }

  /** Whether the reader must not see the batch. To be asked of each batch, in the order of the log. */
  hides(batch: MarkedBatch): boolean {
    for (let next = this.#coming.at(-1); next !== undefined; next = this.#coming.at(-1)) {
      if (next.firstOffset > batch.lastOffset) break
      this.#inside.add(next.producerId)
      this.#coming.pop()
    }
    if (batch.control) {
      if (markerOf(batch) === abortMarker) this.#inside.delete(batch.producerId)
      return true
    }
    return batch.transactional && this.#inside.has(batch.producerId)
  }
}

/** The marker's type: the second half of the key of a control record (version, type). */
function markerOf(batch: MarkedBatch): number | undefined {
  const key = batch.key(0)
  return key === null || key.length < 4 ? undefined : ((key[2] as number) << 8) | (key[3] as number)
}
