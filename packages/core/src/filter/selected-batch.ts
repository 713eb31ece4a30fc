import type { EncodedBatch, Headers, MessageId } from "@millrace/contract"

/** Some records of a batch, as a batch: they keep their offsets, ids and times. Holds the whole batch, and says so in `bytes`. */
export class SelectedBatch implements EncodedBatch {
  readonly count: number
  readonly bytes: number
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  readonly #batch: EncodedBatch
  readonly #picked: Uint32Array

  /** @param picked Indexes of at least one record, ascending. */
  constructor(batch: EncodedBatch, picked: Uint32Array) {
    this.count = picked.length
    this.bytes = batch.bytes
    this.#batch = batch
    this.#picked = picked
    this.firstOffset = this.offset(0)
    this.lastOffset = this.offset(picked.length - 1)
  }

  offset(index: number): bigint {
    return this.#batch.offset(this.#at(index))
  }

  indexOf(offset: bigint): number {
    const wanted = this.#batch.indexOf(offset)
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#picked[middle] as number) < wanted) low = middle + 1
      else high = middle
    }
    return low
  }

  payload(index: number): Uint8Array | null {
    return this.#batch.payload(this.#at(index))
  }

  key(index: number): Uint8Array | null {
    return this.#batch.key(this.#at(index))
  }

  headers(index: number): Headers {
    return this.#batch.headers(this.#at(index))
  }

  id(index: number): MessageId | undefined {
    return this.#batch.id(this.#at(index))
  }

  timestampMicros(index: number): bigint {
    return this.#batch.timestampMicros(this.#at(index))
  }

  originTimestampMicros(index: number): bigint | undefined {
    return this.#batch.originTimestampMicros(this.#at(index))
  }

  checksum(index: number): bigint | undefined {
    return this.#batch.checksum(this.#at(index))
  }

  #at(index: number): number {
    const at = this.#picked[index]
    if (at === undefined) throw new RangeError(`record ${index} of a batch of ${this.count}`)
    return at
  }
}
