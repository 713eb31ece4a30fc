/** What flows through the contract: records in the driver's own encoding, down and up. */
import type { Headers } from "./headers.ts"
import type { MessageId } from "./message-id.ts"

/** One record, complete and checked, as the core hands it to a batch writer. `null` is absent, and distinct from empty. */
export interface WireRecord {
  readonly payload: Uint8Array | null
  readonly key: Uint8Array | null
  readonly headers: Headers
  /** Only an id that the caller gave or that a resend carries; otherwise the batch's id and the index make one. */
  readonly id: MessageId | undefined
  /** The sender's time, when the caller gave one; otherwise the batch's. */
  readonly timestampMicros: bigint | undefined
}

/**
 * Encodes records of one partition in their final form, straight into the buffer that will be sent or stored. Made by the driver,
 * filled by the core's accumulator, used once.
 */
export interface BatchWriter {
  readonly count: number
  /** Encoded bytes so far, overhead included. */
  readonly bytes: number
  /**
   * Encodes one record, or answers false when the batch would pass the limits the writer was made with and is not empty. The first
   * record of a batch is always taken. Nothing of `record` is kept by reference.
   * @throws RecordTooLargeError when the record with the backend's overhead is above a limit; the batch stays as it was
   */
  tryAppend(record: WireRecord): boolean
  /** Closes the batch. The writer must not be used afterwards. */
  seal(stamp: BatchStamp): SealedBatch
}

export interface BatchStamp {
  /** The id of record 0; record i without an own id has `id + i`. Low 20 bits zero (see `batchId`). */
  readonly id: MessageId
  /** The sender's time of records that carry none. */
  readonly timestampMicros: bigint
  /** The records come from a failed publish: their ids are looked up even where the topic does not look up ids one by one. */
  readonly resend: boolean
}

/** A batch that can be appended, any number of times, until it is released. */
export interface SealedBatch {
  readonly partition: number
  readonly count: number
  readonly bytes: number
  /** The records again, each with its id and time, as copies that outlive the batch (for `PublishFailedError`). */
  records(): WireRecord[]
  /** Two batches with the same records in order and the same ids; the batch itself is released. Only for `count` > 1. */
  split(): readonly [SealedBatch, SealedBatch]
  /** Gives the buffer back. Safe while an append is still under way: the driver reuses the buffer when its last user is done. */
  release(): void
}

/**
 * A batch as it was read, still encoded. Records are addressed by index, 0 to `count` − 1, in offset order; looking at one decodes
 * only what is asked for. Arrays are views of the batch's buffer: valid as long as anybody holds them, never reused.
 * @throws CorruptionError or DecodeError from any accessor when the bytes contradict themselves.
 */
export interface EncodedBatch {
  readonly count: number
  readonly bytes: number
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  offset(index: number): bigint
  /** The index of the first record at or behind the offset; `count` when all lie before it. */
  indexOf(offset: bigint): number
  payload(index: number): Uint8Array | null
  key(index: number): Uint8Array | null
  /** @throws DecodeError when the header block is malformed; the rest of the record stays readable. */
  headers(index: number): Headers
  id(index: number): MessageId | undefined
  /** The backend's append time. */
  timestampMicros(index: number): bigint
  /** The sender's time, where the backend keeps one. */
  originTimestampMicros(index: number): bigint | undefined
  /** The backend's own checksum of the record, where it has one. */
  checksum(index: number): bigint | undefined
}
