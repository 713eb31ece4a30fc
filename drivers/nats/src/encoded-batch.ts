import { DecodeError, type EncodedBatch, type Headers, type MessageId } from "@millrace/contract"
import { decodeRecord, type RecordParts, tellsNull } from "./header-block.ts"

/** One message as it was read: bytes of the client's buffer, undecoded. Made once a message, by the reader. */
export interface StoredMessage {
  /** The sequence in the JetStream stream: the offset plus 1. */
  readonly sequence: number
  /** The header block from `NATS/1.0` on, if there is one, and the payload behind it. */
  readonly raw: Uint8Array
  /** Bytes of the header block; 0 when there is none. */
  readonly headBytes: number
  /** The append time in µs, looked up only when it is asked for. */
  timestampMicros(): bigint
}

/** Messages of one partition in the order of their sequences, as a batch. Headers are decoded at the first look at a record. */
export class NatsBatch implements EncodedBatch {
  readonly count: number
  readonly bytes: number
  readonly #messages: readonly StoredMessage[]
  readonly #decoded: (RecordParts | undefined)[]

  /** @param messages At least one; kept, not copied. */
  constructor(messages: readonly StoredMessage[], bytes: number) {
    this.#messages = messages
    this.count = messages.length
    this.bytes = bytes
    this.#decoded = new Array<RecordParts | undefined>(messages.length)
  }

  get firstOffset(): bigint {
    return this.offset(0)
  }

  get lastOffset(): bigint {
    return this.offset(this.count - 1)
  }

  offset(index: number): bigint {
    return BigInt(this.#message(index).sequence - 1)
  }

  indexOf(offset: bigint): number {
    const sequence = Number(offset) + 1
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#message(middle).sequence < sequence) low = middle + 1
      else high = middle
    }
    return low
  }

  payload(index: number): Uint8Array | null {
    const { raw, headBytes } = this.#message(index)
    if (headBytes > 0 && tellsNull(raw, headBytes)) return null
    // A plain array: the client's is a Node Buffer.
    return new Uint8Array(raw.buffer, raw.byteOffset + headBytes, raw.length - headBytes)
  }

  key(index: number): Uint8Array | null {
    return this.#record(index).key
  }

  headers(index: number): Headers {
    return this.#record(index).headers()
  }

  id(index: number): MessageId | undefined {
    return this.#record(index).id
  }

  timestampMicros(index: number): bigint {
    return this.#message(index).timestampMicros()
  }

  originTimestampMicros(index: number): bigint | undefined {
    return this.#record(index).originTimestampMicros
  }

  /** JetStream's checksums stay on the server. */
  checksum(_index: number): bigint | undefined {
    return undefined
  }

  #record(index: number): RecordParts {
    const known = this.#decoded[index]
    if (known !== undefined) return known
    const { raw, headBytes } = this.#message(index)
    const record = decodeRecord(headBytes === 0 ? undefined : raw.subarray(0, headBytes))
    this.#decoded[index] = record
    return record
  }

  #message(index: number): StoredMessage {
    const message = this.#messages[index]
    if (message === undefined) throw new DecodeError(`record ${index} is out of range: the batch has ${this.count}`)
    return message
  }
}
