import type { EncodedBatch, Headers, MessageId } from "@millrace/contract"
import type { BatchBody } from "./batch-body.ts"

/** What the log knows of a batch beside its bytes. */
export interface BatchPlace {
  readonly base: bigint
  readonly timestampMicros: bigint
}

/** A batch as it was read: its bytes and where they stand. The worker has verified the checksum. */
export class StoredBatch implements EncodedBatch {
  readonly firstOffset: bigint
  readonly count: number
  readonly bytes: number
  readonly #body: BatchBody
  readonly #timestampMicros: bigint

  constructor(body: BatchBody, place: BatchPlace) {
    this.firstOffset = place.base
    this.count = body.count
    this.bytes = body.bytes
    this.#body = body
    this.#timestampMicros = place.timestampMicros
  }

  get lastOffset(): bigint {
    return this.firstOffset + BigInt(this.count - 1)
  }

  offset(index: number): bigint {
    return this.firstOffset + BigInt(index)
  }

  indexOf(offset: bigint): number {
    const distance = offset - this.firstOffset
    return distance <= 0n ? 0 : Math.min(this.count, Number(distance))
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

  id(index: number): MessageId | undefined {
    return this.#body.id(index)
  }

  /** All records of a batch are appended at once. */
  timestampMicros(_index: number): bigint {
    return this.#timestampMicros
  }

  originTimestampMicros(index: number): bigint | undefined {
    return this.#body.originTimeMicros(index)
  }

  /** The log keeps a checksum a batch, none a record. */
  checksum(_index: number): bigint | undefined {
    return undefined
  }
}
