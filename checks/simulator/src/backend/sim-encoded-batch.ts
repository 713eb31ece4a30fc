import type { EncodedBatch, Headers, MessageId } from "@millrace/contract"
import type { SimRecord } from "./sim-batch.ts"

/** Bytes that a record of the simulated encoding counts. */
const recordBytes = 10

/** Records of one append as a reader gets them: without those that lie in holes. */
export class SimEncodedBatch implements EncodedBatch {
  readonly #offsets: readonly number[]
  readonly #records: readonly SimRecord[]

  /** @param visible Which of `records` there are, as indexes in rising order; at least one. */
  constructor(base: number, records: readonly SimRecord[], visible: readonly number[]) {
    this.#offsets = visible.map((index) => base + index)
    this.#records = visible.map((index) => records[index] as SimRecord)
  }

  get count(): number {
    return this.#records.length
  }

  get bytes(): number {
    return this.count * recordBytes
  }

  get firstOffset(): bigint {
    return this.offset(0)
  }

  get lastOffset(): bigint {
    return this.offset(this.count - 1)
  }

  offset(index: number): bigint {
    return BigInt(this.#offsets[index] as number)
  }

  indexOf(offset: bigint): number {
    const index = this.#offsets.findIndex((one) => one >= offset)
    return index === -1 ? this.count : index
  }

  payload(index: number): Uint8Array | null {
    return this.#record(index).payload
  }

  key(index: number): Uint8Array | null {
    return this.#record(index).key
  }

  headers(index: number): Headers {
    return this.#record(index).headers
  }

  id(index: number): MessageId {
    return this.#record(index).id
  }

  timestampMicros(index: number): bigint {
    return this.#record(index).timestampMicros
  }

  originTimestampMicros(index: number): bigint {
    return this.#record(index).timestampMicros
  }

  checksum(): undefined {
    return undefined
  }

  #record(index: number): SimRecord {
    return this.#records[index] as SimRecord
  }
}
