import type { EncodedBatch, ErrorContext, Headers, MessageId, TopicPartition } from "@millrace/contract"
import { CorruptionError, MillraceError, UnsupportedError } from "@millrace/contract"
import { decompress } from "../compression/codecs.ts"
import { crc32c } from "./checksum.ts"
import { at, attributes, headerBytes, leastRecordBytes, magic, uncountedBytes } from "./layout.ts"
import { noHeaders, type ReadHeaders, readHeaders } from "./record-headers.ts"
import { indexRecords, type RecordIndex } from "./record-index.ts"

/**
 * One record batch as it came from a broker. The checksum is verified, and the records are decompressed and indexed, when it is made;
 * what is in them is decoded when it is asked for. Arrays are views of the fetched frame, or of what was decompressed.
 */
export class KafkaEncodedBatch implements EncodedBatch {
  /** Of what is left: compaction may have removed records, even all of them. */
  readonly count: number
  readonly bytes: number
  /** What it holds beside the fetched frame: its records, when they were compressed. */
  readonly decompressedBytes: number
  /** Whether it holds a marker of a transaction, which is not for readers. */
  readonly control: boolean
  readonly transactional: boolean
  readonly producerId: bigint
  readonly producerEpoch: number
  /** Of record 0, as it was sent; −1 without an identity. */
  readonly baseSequence: number
  readonly leaderEpoch: number
  /** Of the first record as it was sent. */
  readonly baseOffset: bigint
  /** The offset that follows the batch, its removed records included. */
  readonly nextOffset: bigint
  readonly #baseMillis: bigint
  /** When the broker appended it; absent where the topic keeps the sender's times. */
  readonly #appendMillis: bigint | undefined
  readonly #body: Buffer
  readonly #index: RecordIndex
  #headersOf = -1
  #headers: ReadHeaders = noHeaders

  /**
   * @param bytes The whole batch and nothing else.
   * @param options.trusted The checksum has not been stamped yet and is not looked at.
   * @throws CorruptionError when the bytes contradict themselves, UnsupportedError for an older format or an unknown codec
   */
  constructor(bytes: Buffer, place: TopicPartition, options: { readonly trusted: boolean } = { trusted: false }) {
    // Behind it the header is what the producer wrote, and where the batch ends can be told.
    let nextOffset: bigint | undefined
    const where = (): Where => {
      const offset = bytes.length < headerBytes ? -1n : bytes.readBigInt64BE()
      return nextOffset === undefined ? { ...place, offset } : { ...place, offset, nextOffset }
    }
    if (bytes.length > at.magic && bytes[at.magic] !== magic) throw oldFormat(where(), bytes.readInt8(at.magic))
    if (bytes.length < headerBytes) throw corrupt(where(), `${bytes.length} bytes hold no header`)
    const header = new DataView(bytes.buffer, bytes.byteOffset, headerBytes)
    if (header.getInt32(at.length) !== bytes.length - uncountedBytes) throw corrupt(where(), "its length is another")
    if (!options.trusted && crc32c(bytes, at.attributes) !== header.getUint32(at.crc)) {
      throw corrupt(where(), "its checksum (CRC-32C) does not match")
    }
    const flags = header.getInt16(at.attributes)
    const count = header.getInt32(at.count)
    const lastOffsetDelta = header.getInt32(at.lastOffsetDelta)
    if (count < 0 || lastOffsetDelta < 0) throw corrupt(where(), `it says that it has ${count} records`)
    this.count = count
    this.bytes = bytes.length
    this.control = (flags & attributes.control) !== 0
    this.transactional = (flags & attributes.transactional) !== 0
    this.producerId = header.getBigInt64(at.producerId)
    this.producerEpoch = header.getInt16(at.producerEpoch)
    this.baseSequence = header.getInt32(at.sequence)
    this.leaderEpoch = header.getInt32(at.leaderEpoch)
    this.baseOffset = header.getBigInt64(at.baseOffset)
    nextOffset = this.baseOffset + BigInt(lastOffsetDelta) + 1n
    this.nextOffset = nextOffset
    this.#baseMillis = header.getBigInt64(at.baseTimestamp)
    this.#appendMillis = (flags & attributes.logAppendTime) === 0 ? undefined : header.getBigInt64(at.maxTimestamp)
    const codec = flags & attributes.compression
    this.#body = codec === 0 ? bytes : decompressed(codec, bytes.subarray(headerBytes), where)
    this.decompressedBytes = codec === 0 ? 0 : this.#body.length
    const start = codec === 0 ? headerBytes : 0
    if (count * leastRecordBytes > this.#body.length - start) throw corrupt(where(), `it cannot hold ${count} records`)
    const index = indexRecords(this.#body, start, count)
    if (typeof index === "string") throw corrupt(where(), index)
    if (count > 0 && index.offsetDelta(count - 1) > lastOffsetDelta)
      throw corrupt(where(), "a record lies behind its end")
    this.#index = index
  }

  /** Of the first record that is left; where none is, of the batch. */
  get firstOffset(): bigint {
    return this.count === 0 ? this.baseOffset : this.offset(0)
  }

  /** Of the last record that is left; where none is, of the batch. */
  get lastOffset(): bigint {
    return this.count === 0 ? this.nextOffset - 1n : this.offset(this.count - 1)
  }

  offset(index: number): bigint {
    return this.baseOffset + BigInt(this.#index.offsetDelta(index))
  }

  indexOf(offset: bigint): number {
    const delta = offset - this.baseOffset
    if (delta <= 0n) return 0
    return offset >= this.nextOffset ? this.count : this.#index.firstAtOrBehind(Number(delta))
  }

  payload(index: number): Uint8Array | null {
    const length = this.#index.valueBytes(index)
    return length < 0 ? null : this.#view(this.#index.valueAt(index), length)
  }

  key(index: number): Uint8Array | null {
    const length = this.#index.keyBytes(index)
    return length < 0 ? null : this.#view(this.#index.keyAt(index), length)
  }

  headers(index: number): Headers {
    return this.#readHeaders(index).headers
  }

  id(index: number): MessageId | undefined {
    return this.#readHeaders(index).id
  }

  /** The broker's time where the topic keeps it (`message.timestamp.type=LogAppendTime`), otherwise the sender's: Kafka has but one. */
  timestampMicros(index: number): bigint {
    return (this.#appendMillis ?? this.#senderMillis(index)) * 1000n
  }

  /** Absent where the broker has put its own time in its place. */
  originTimestampMicros(index: number): bigint | undefined {
    const millis = this.#senderMillis(index)
    return this.#appendMillis === undefined ? millis * 1000n : undefined
  }

  /** Kafka has a checksum a batch, none a record. */
  checksum(_index: number): bigint | undefined {
    return undefined
  }

  #senderMillis(index: number): bigint {
    return this.#baseMillis + this.#index.timestampDelta(index)
  }

  #view(position: number, length: number): Uint8Array {
    const body = this.#body
    return new Uint8Array(body.buffer, body.byteOffset + position, length)
  }

  #readHeaders(index: number): ReadHeaders {
    if (index === this.#headersOf) return this.#headers
    const start = this.#index.headersAt(index)
    const end = this.#index.end(index)
    if (end - start === 1 && this.#body[start] === 0) return noHeaders
    this.#headers = readHeaders(this.#body.subarray(start, end))
    this.#headersOf = index
    return this.#headers
  }
}

interface Where extends TopicPartition {
  /** The base offset of the batch. */
  readonly offset: bigint
  /** The offset behind the batch, where it is known. */
  readonly nextOffset?: bigint
}

function decompressed(codec: number, bytes: Buffer, where: () => Where): Buffer {
  try {
    return decompress(codec, bytes)
  } catch (error) {
    if (!(error instanceof MillraceError)) throw error
    if (!(error instanceof UnsupportedError)) throw corrupt(where(), error.message, error)
    throw new UnsupportedError(`${batchAt(where())}: ${error.message}`, { context: contextOf(where()) })
  }
}

function oldFormat(where: Where, found: number): MillraceError {
  if (found !== 0 && found !== 1) return corrupt(where, `format ${found} is not known`)
  return new UnsupportedError(
    `${batchAt(where)} is in the message format ${found}, which Kafka wrote before 0.11: format ${magic} is supported. Copy the topic with a client of that time`,
    { context: contextOf(where) },
  )
}

function corrupt(where: Where, detail: string, cause?: unknown): CorruptionError {
  return new CorruptionError(`${batchAt(where)} is corrupt: ${detail}`, { context: contextOf(where), cause })
}

function batchAt(where: Where): string {
  const name = where.stream === "" ? where.topic : `${where.stream}/${where.topic}`
  return `the record batch at offset ${where.offset} of partition ${where.partition} of topic ${JSON.stringify(name)}`
}

function contextOf({ stream, topic, partition, offset, nextOffset }: Where): ErrorContext {
  const context = { stream, topic, partition, offset }
  return nextOffset === undefined ? context : { ...context, nextOffset }
}
