/** Batches as polls bring them (iggy-wire.md: Polls): looked through once for their structure and checksums, decoded when looked at. */
import { CorruptionError, type EncodedBatch, type ErrorContext, type Headers, type MessageId } from "@millrace/contract"
import { batchChecksum, messageChecksums } from "./checksum.ts"
import { batchAt, batchHeaderBytes, messageAt, messageHeaderBytes } from "./layout.ts"
import { type HeaderBlock, isNullPayload, readHeaders, readKey } from "./user-headers.ts"

/**
 * The batches that lie back to back in a poll's records. One whose lengths or checksums contradict its bytes does not hide those before
 * it: they are answered, and the next poll begins with it.
 * @throws CorruptionError when the first is such a one; its context names its first offset, and `nextOffset` behind it where that is known
 */
export function readBatches(records: Uint8Array): IggyEncodedBatch[] {
  const bytes = Buffer.from(records.buffer, records.byteOffset, records.byteLength)
  const batches: IggyEncodedBatch[] = []
  let at = 0
  while (at < bytes.length) {
    let batch: IggyEncodedBatch
    try {
      batch = readBatch(bytes, at)
    } catch (error) {
      if (batches.length > 0 && error instanceof CorruptionError) break
      throw error
    }
    if (batch.count > 0) batches.push(batch)
    at += batch.bytes
  }
  return batches
}

/** One batch at `at`. @throws CorruptionError */
export function readBatch(bytes: Buffer, at: number): IggyEncodedBatch {
  if (bytes.length - at < batchHeaderBytes) throw corrupt(at, `ends after ${bytes.length - at} bytes of its header`)
  const length = bytes.readUInt32LE(at + batchAt.length)
  const tooLong = bytes.readUInt32LE(at + batchAt.length + 4) !== 0
  if (tooLong || length < batchHeaderBytes || length > bytes.length - at)
    throw corrupt(
      at,
      `says that it has ${bytes.readBigUInt64LE(at + batchAt.length)} bytes where ${bytes.length - at} are left`,
    )
  const count = bytes.readUInt32LE(at + batchAt.count)
  const end = at + length
  if (count * messageHeaderBytes > length - batchHeaderBytes)
    throw corrupt(at, `counts ${count} messages in ${length} bytes`)
  const starts = new Uint32Array(count)
  let position = at + batchHeaderBytes
  let lastDelta = -1
  for (let i = 0; i < count; i++) {
    if (end - position < messageHeaderBytes) throw corrupt(at, `ends before message ${i} of ${count}`)
    const payload = bytes.readUInt32LE(position + messageAt.payloadLength)
    const headers = bytes.readUInt32LE(position + messageAt.headersLength)
    const next = position + messageHeaderBytes + payload + headers
    if (next > end) throw corrupt(at, `ends within message ${i} of ${count}`)
    const delta = bytes.readUInt32LE(position + messageAt.offsetDelta)
    if (delta <= lastDelta) throw corrupt(at, `has message ${i} out of order`)
    starts[i] = position
    lastDelta = delta
    position = next
  }
  if (position !== end) throw corrupt(at, `has ${end - position} bytes behind its last message`)
  const baseOffset = bytes.readBigUInt64LE(at + batchAt.baseOffset)
  const context = { offset: baseOffset, nextOffset: baseOffset + BigInt(lastDelta + 1) }
  const hashes = messageChecksums({ bytes, starts, end })
  for (let i = 0; i < count; i++) {
    const start = starts[i] as number
    if (bytes.readUInt32LE(start) === hashes[i * 2] && bytes.readUInt32LE(start + 4) === hashes[i * 2 + 1]) continue
    const offset = baseOffset + BigInt(bytes.readUInt32LE(start + messageAt.offsetDelta))
    throw corrupt(at, `has a wrong checksum at message ${i}, offset ${offset}`, context)
  }
  if (batchChecksum(bytes, at, hashes) !== bytes.readBigUInt64LE(at + batchAt.checksum))
    throw corrupt(at, "has a wrong checksum", context)
  return new IggyEncodedBatch(bytes, { at, length, starts })
}

/** A batch whose structure has been checked. */
export class IggyEncodedBatch implements EncodedBatch {
  readonly count: number
  readonly bytes: number
  readonly #bytes: Buffer
  readonly #at: number
  readonly #starts: Uint32Array
  readonly #baseOffset: bigint

  constructor(bytes: Buffer, place: { readonly at: number; readonly length: number; readonly starts: Uint32Array }) {
    this.#bytes = bytes
    this.#at = place.at
    this.#starts = place.starts
    this.count = place.starts.length
    this.bytes = place.length
    this.#baseOffset = bytes.readBigUInt64LE(place.at + batchAt.baseOffset)
  }

  get firstOffset(): bigint {
    return this.offset(0)
  }

  get lastOffset(): bigint {
    return this.offset(this.count - 1)
  }

  offset(index: number): bigint {
    return this.#baseOffset + BigInt(this.#delta(index))
  }

  indexOf(offset: bigint): number {
    const wanted = offset - this.#baseOffset
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = (low + high) >>> 1
      if (BigInt(this.#delta(middle)) < wanted) low = middle + 1
      else high = middle
    }
    return low
  }

  payload(index: number): Uint8Array | null {
    const start = this.#start(index)
    const length = this.#bytes.readUInt32LE(start + messageAt.payloadLength)
    if (length === 0 && isNullPayload(this.#headers(index))) return null
    return new Uint8Array(this.#bytes.buffer, this.#bytes.byteOffset + start + messageAt.payload, length)
  }

  key(index: number): Uint8Array | null {
    return readKey(this.#headers(index))
  }

  headers(index: number): Headers {
    return readHeaders(this.#headers(index))
  }

  /** `undefined` for 0, which other clients may leave. */
  id(index: number): MessageId | undefined {
    const at = this.#start(index) + messageAt.id
    const id = (this.#bytes.readBigUInt64LE(at + 8) << 64n) | this.#bytes.readBigUInt64LE(at)
    return id === 0n ? undefined : id
  }

  timestampMicros(_index: number): bigint {
    return this.#bytes.readBigUInt64LE(this.#at + batchAt.appendTime)
  }

  originTimestampMicros(index: number): bigint {
    const delta = this.#bytes.readUInt32LE(this.#start(index) + messageAt.timeDelta)
    return this.#bytes.readBigUInt64LE(this.#at + batchAt.originTime) + BigInt(delta)
  }

  checksum(index: number): bigint {
    return this.#bytes.readBigUInt64LE(this.#start(index) + messageAt.checksum)
  }

  #start(index: number): number {
    const start = this.#starts[index]
    if (start === undefined) throw new RangeError(`record ${index} is out of range: the batch has ${this.count}`)
    return start
  }

  #delta(index: number): number {
    return this.#bytes.readUInt32LE(this.#start(index) + messageAt.offsetDelta)
  }

  #headers(index: number): HeaderBlock {
    const start = this.#start(index)
    const bytes = this.#bytes
    const from = start + messageHeaderBytes + bytes.readUInt32LE(start + messageAt.payloadLength)
    return { bytes, from, to: from + bytes.readUInt32LE(start + messageAt.headersLength) }
  }
}

function corrupt(at: number, why: string, context: ErrorContext = {}): CorruptionError {
  return new CorruptionError(`the batch at byte ${at} of a reply of Apache Iggy ${why}`, { context })
}
