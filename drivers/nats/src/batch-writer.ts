import {
  type BatchStamp,
  type BatchWriter,
  formatMessageId,
  type MessageId,
  maxBatchRecords,
  RecordTooLargeError,
  type WireRecord,
} from "@millrace/contract"
import { type BatchContent, idLineBytes, stampIds } from "./batch-content.ts"
import { headerLines, messageIdName, preamble } from "./header-block.ts"
import type { PartitionTarget } from "./partition-target.ts"
import { NatsSealedBatch } from "./sealed-batch.ts"
import { described } from "./topic-layout.ts"

/** The longest header block that JetStream stores (error 10097), in bytes. */
export const longestHeaderBlock: number = 65_535

/** What a way of sending puts into the header block beside the record's own lines: three lines of an atomic batch, with room. */
export const reservedHeaderBytes: number = 160

/** What a record takes beside its own bytes, for the size of a batch: the protocol line and the first line of the headers. */
const recordOverheadBytes = 32

export interface WriterOptions {
  readonly limits: { readonly records: number; readonly bytes: number }
  /** Headers and payload together: the server's `max_payload`. */
  readonly maxPayloadBytes: number
  /** Whether records without a given id carry the one that derives from the batch. */
  readonly allIds: boolean
}

/** Encodes records into one growing buffer; see `BatchContent` for its layout. */
export class NatsBatchWriter implements BatchWriter {
  readonly #target: PartitionTarget
  readonly #options: WriterOptions
  readonly #starts: number[] = [0]
  readonly #headBytes: number[] = []
  readonly #givenIds = new Map<number, MessageId>()
  #buffer: Buffer
  #length = 0

  constructor(target: PartitionTarget, options: WriterOptions) {
    this.#target = target
    this.#options = options
    this.#buffer = Buffer.allocUnsafeSlow(Math.max(512, Math.min(options.limits.bytes, firstBufferBytes)))
  }

  get count(): number {
    return this.#headBytes.length
  }

  get bytes(): number {
    return this.#length + this.count * recordOverheadBytes
  }

  tryAppend(record: WireRecord): boolean {
    const { limits, allIds } = this.#options
    const { count } = this
    if (count > 0 && (count >= limits.records || count >= maxBatchRecords - 1)) return false
    const hasId = allIds || record.id !== undefined
    const lines = simple(record) ? "" : headerLines(record)
    const linesBytes = lines === "" ? 0 : Buffer.byteLength(lines)
    const head = hasId || linesBytes > 0 ? (hasId ? idLineBytes : 0) + linesBytes + 2 : 0
    const payloadBytes = record.payload === null ? 0 : record.payload.length
    this.#checkSize(head, payloadBytes)
    const size = head + payloadBytes
    if (count > 0 && this.bytes + size + recordOverheadBytes > limits.bytes) return false
    this.#reserve(size)
    this.#write(record, { hasId, lines, head })
    return true
  }

  seal(stamp: BatchStamp): NatsSealedBatch {
    const content: BatchContent = {
      bytes: this.#buffer,
      starts: this.#starts,
      headBytes: this.#headBytes,
      givenIds: this.#givenIds,
      allIds: this.#options.allIds,
      stamp,
    }
    stampIds(content)
    return new NatsSealedBatch(this.#target, content, { from: 0, count: this.count })
  }

  #write(
    record: WireRecord,
    { hasId, lines, head }: { readonly hasId: boolean; readonly lines: string; readonly head: number },
  ): void {
    const buffer = this.#buffer
    let at = this.#length
    if (hasId) {
      buffer.write(idLine, at, "latin1")
      if (record.id !== undefined) {
        this.#givenIds.set(this.count, record.id)
        buffer.write(formatMessageId(record.id), at + idLine.length - 38, "latin1")
      }
      at += idLine.length
    }
    if (lines !== "") at += buffer.write(lines, at, "utf8")
    if (head > 0) {
      buffer[at] = 0x0d
      buffer[at + 1] = 0x0a
      at += 2
    }
    if (record.payload !== null) {
      buffer.set(record.payload, at)
      at += record.payload.length
    }
    this.#length = at
    this.#headBytes.push(head)
    this.#starts.push(at)
  }

  #reserve(size: number): void {
    const wanted = this.#length + size
    if (wanted <= this.#buffer.length) return
    const larger = Buffer.allocUnsafeSlow(Math.max(wanted, this.#buffer.length * 2))
    this.#buffer.copy(larger, 0, 0, this.#length)
    this.#buffer = larger
  }

  #checkSize(head: number, payloadBytes: number): void {
    const block = preamble.length + head + reservedHeaderBytes
    const sizeBytes = block + payloadBytes
    const { maxPayloadBytes } = this.#options
    const { stream, topic, partition } = this.#target
    if (block > longestHeaderBlock) {
      throw new RecordTooLargeError(
        `the key and the headers of a record for topic ${described(this.#target)} take ${block} bytes in NATS: at most ${longestHeaderBlock} are possible`,
        { context: { stream, topic, partition, sizeBytes: block, limitBytes: longestHeaderBlock } },
      )
    }
    if (sizeBytes > maxPayloadBytes) {
      throw new RecordTooLargeError(
        `a record for topic ${described(this.#target)} takes ${sizeBytes} bytes in NATS with its headers: the server takes ${maxPayloadBytes} (max_payload)`,
        { context: { stream, topic, partition, sizeBytes, limitBytes: maxPayloadBytes } },
      )
    }
  }
}

/** Bytes that a writer begins with. */
const firstBufferBytes = 16_384
const idLine = `${messageIdName}: ${"0".repeat(36)}\r\n`

/** Nothing but a payload, and perhaps an id. */
function simple({ payload, key, headers, timestampMicros }: WireRecord): boolean {
  return payload !== null && key === null && timestampMicros === undefined && headers.size === 0
}
