/** Some records of a stored batch, moved together into a smaller one. */
import type { EncodedBatch, Headers, MessageId } from "@millrace/contract"
import type { BatchBody } from "./batch-body.ts"
import type { BatchPlace } from "./encoded-batch.ts"
import { at, headerBytes, indexEntryBytes } from "./layout.ts"

/** Bytes of a batch with only these records. */
export function pickedBytes(body: BatchBody, picked: Uint32Array): number {
  let bytes = headerBytes
  for (const index of picked) bytes += body.record(index).length + indexEntryBytes
  return bytes
}

/** Writes these records as a batch that fills `target`. The records stay as they are stored: see `PickedBatch` for their ids. */
export function writePicked(body: BatchBody, picked: Uint32Array, target: Uint8Array): void {
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength)
  target.set(body.whole.subarray(0, headerBytes))
  view.setUint32(at.count, picked.length, true)
  let position = headerBytes
  let entry = target.length - picked.length * indexEntryBytes
  for (const index of picked) {
    const record = body.record(index)
    target.set(record, position)
    position += record.length
    view.setUint32(entry, position, true)
    entry += indexEntryBytes
  }
}

/** Such a batch as it is read. Records keep their offsets, ids and times; the worker has verified the checksum of the whole. */
export class PickedBatch implements EncodedBatch {
  readonly count: number
  readonly bytes: number
  readonly #body: BatchBody
  readonly #place: BatchPlace
  readonly #picked: Uint32Array

  /**
   * @param place Of the whole batch.
   * @param picked The index of each record in the whole batch.
   */
  constructor(body: BatchBody, place: BatchPlace, picked: Uint32Array) {
    this.count = body.count
    this.bytes = body.bytes
    this.#body = body
    this.#place = place
    this.#picked = picked
  }

  get firstOffset(): bigint {
    return this.offset(0)
  }

  get lastOffset(): bigint {
    return this.offset(this.count - 1)
  }

  offset(index: number): bigint {
    return this.#place.base + BigInt(this.#picked[index] as number)
  }

  indexOf(offset: bigint): number {
    const wanted = offset - this.#place.base
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = (low + high) >> 1
      if (BigInt(this.#picked[middle] as number) < wanted) low = middle + 1
      else high = middle
    }
    return low
  }

  payload(index: number): Uint8Array | null {
    return this.#body.payload(index)
  }

  key(index: number): Uint8Array | null {
    return this.#body.key(index)
  }

  headers(index: number): Headers {
    return this.#body.headers(index)
  }

  id(index: number): MessageId {
    return this.#body.ownId(index) ?? this.#body.batchId + BigInt(this.#picked[index] as number)
  }

  timestampMicros(_index: number): bigint {
    return this.#place.timestampMicros
  }

  originTimestampMicros(index: number): bigint {
    return this.#body.originTimeMicros(index)
  }

  /** The log keeps a checksum a batch, none a record. */
  checksum(_index: number): bigint | undefined {
    return undefined
  }
}
