import { Buffer } from "node:buffer"
import type { EncodedBatch, MessageId } from "@millrace/contract"
import { DecodeError, formatMessageId, Headers } from "@millrace/contract"
import type { OpenedContent, RecordOpener } from "../encryption/encryptor.ts"
import { positioned } from "../encryption/positioned.ts"
import { joinHeaders } from "../encryption/trace-headers.ts"
import type { RecordDecoder } from "../typed/record-decoder.ts"
import type { CheckpointPlace } from "./checkpoint.ts"
import { Checkpoint } from "./checkpoint.ts"
import { OwnedRecord } from "./owned-record.ts"

/** Where a record lies in its topic. */
export interface Position {
  readonly partition: number
  readonly offset: bigint
}

/**
 * One record as it was read (seed 000, "Consumers, offsets, and commit policies"; table 1.8). Nothing is decoded before it is
 * looked at. Byte arrays are views of the batch that the record came with: a message that is kept keeps its whole batch in
 * memory, unless it is taken by `copy()`.
 * @throws CorruptionError from any getter when the stored bytes contradict themselves.
 */
export interface Message {
  readonly stream: string
  readonly topic: string
  readonly position: Position
  /** `null` is a tombstone, distinct from empty. */
  readonly payload: Uint8Array | null
  /** `null` when the record has no key, distinct from an empty one. */
  readonly key: Uint8Array | null
  /** In the order they were sent. Empty when the stored header block is malformed; `headersError` then tells why. */
  readonly headers: Headers
  /** Set when the header block does not decode. The rest of the message can be read. */
  readonly headersError: DecodeError | undefined
  /** Absent where the backend keeps no ids. */
  readonly id: MessageId | undefined
  /** The backend's append time. */
  readonly timestampMicros: bigint
  /** The sender's time, where the backend keeps one. */
  readonly originTimestampMicros: bigint | undefined
  /** The backend's own checksum of the record, where it has one. */
  readonly checksum: bigint | undefined
  /** The offset of the partition's newest record when this one was polled (the seed's `current_offset`). */
  readonly partitionHead: bigint
  /** What `commit` needs of this message, without its bytes. */
  checkpoint(): Checkpoint
  /** The same message with bytes of its own, so that it may be kept without keeping its batch. */
  copy(): Message
  /** All of it for `JSON.stringify`, without losing a digit or a byte: 64 bits and more as decimal text, bytes as base64, the id as a UUID. */
  toJSON(): MessageJson
}

/** A message as JSON: bytes are base64, 64-bit numbers decimal text; `null` payloads and keys stay `null`. */
export interface MessageJson {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  readonly offset: string
  readonly id: string | null
  readonly timestampMicros: string
  readonly originTimestampMicros: string | null
  readonly checksum: string | null
  readonly partitionHead: string
  readonly key: string | null
  readonly headers: ReturnType<Headers["toJSON"]>
  /** Why `headers` is empty, when the header block is malformed. */
  readonly headersError?: string
  readonly payload: string | null
}

/** What all messages of one batch share: one object a batch, so that a message itself holds no more than this and an index. */
export interface MessageSource extends CheckpointPlace {
  readonly batch: EncodedBatch
  /** The end of the partition at the poll: the offset behind its newest record. */
  readonly end: bigint
  /** What decrypts the records; absent where nobody asked for that. */
  readonly opener?: RecordOpener | undefined
  /** What decodes the payloads; absent where messages are bytes. */
  readonly decoder?: RecordDecoder | undefined
}

/** The record `index` of a batch. Two words and a cache for headers; everything else is decoded when asked for. */
export class BatchMessage implements Message {
  readonly #source: MessageSource
  readonly #index: number
  #headers: Headers | DecodeError | undefined
  /** What the record decrypted to. */
  #content: OpenedContent | undefined

  constructor(source: MessageSource, index: number) {
    this.#source = source
    this.#index = index
    this.#headers = undefined
    this.#content = undefined
  }

  /**
   * Decrypts the record, and decodes it, where its source has something to do that with. To be called before the message is handed out.
   * @throws DecodeError with the record's position
   */
  open(): this {
    const { opener } = this.#source
    if (opener !== undefined) this.#content = this.#opened(opener)
    return this
  }

  get stream(): string {
    return this.#source.stream
  }
  get topic(): string {
    return this.#source.topic
  }
  get position(): Position {
    return { partition: this.#source.partition, offset: this.#source.batch.offset(this.#index) }
  }
  get payload(): Uint8Array | null {
    return this.#content === undefined ? this.#source.batch.payload(this.#index) : this.#content.payload
  }
  get key(): Uint8Array | null {
    return this.#source.batch.key(this.#index)
  }
  get headers(): Headers {
    const headers = this.#decodedHeaders()
    return headers instanceof Headers ? headers : Headers.empty
  }
  get headersError(): DecodeError | undefined {
    const headers = this.#decodedHeaders()
    return headers instanceof Headers ? undefined : headers
  }
  get id(): MessageId | undefined {
    return this.#source.batch.id(this.#index)
  }
  get timestampMicros(): bigint {
    return this.#source.batch.timestampMicros(this.#index)
  }
  get originTimestampMicros(): bigint | undefined {
    return this.#source.batch.originTimestampMicros(this.#index)
  }
  get checksum(): bigint | undefined {
    return this.#source.batch.checksum(this.#index)
  }
  get partitionHead(): bigint {
    return this.#source.end - 1n
  }

  checkpoint(): Checkpoint {
    return new Checkpoint(this.#source, this.#source.batch.offset(this.#index))
  }

  copy(): Message {
    const content = this.#content && { payload: this.#content.payload, headers: this.#decodedHeaders() }
    const batch = new OwnedRecord(this.#source.batch, this.#index, content)
    return this.owner({ ...this.#source, batch, opener: undefined })
  }

  /** The message whose bytes are its own. */
  protected owner(source: MessageSource): Message {
    return new BatchMessage(source, 0)
  }

  toJSON(): MessageJson {
    const { partition, offset } = this.position
    const id = this.id
    const error = this.headersError
    return {
      stream: this.stream,
      topic: this.topic,
      partition,
      offset: offset.toString(),
      id: id === undefined ? null : formatMessageId(id),
      timestampMicros: this.timestampMicros.toString(),
      originTimestampMicros: this.originTimestampMicros?.toString() ?? null,
      checksum: this.checksum?.toString() ?? null,
      partitionHead: this.partitionHead.toString(),
      key: base64(this.key),
      headers: this.headers.toJSON(),
      ...(error === undefined ? {} : { headersError: error.message }),
      payload: base64(this.payload),
    }
  }

  #decodedHeaders(): Headers | DecodeError {
    if (this.#headers === undefined) {
      const stored = headersOf(this.#source, this.#index)
      this.#headers = this.#content === undefined ? stored : joinHeaders(this.#content.headers, stored)
    }
    return this.#headers
  }

  #opened(opener: RecordOpener): OpenedContent | undefined {
    const { batch, stream, topic, partition } = this.#source
    const index = this.#index
    try {
      const headers = (): Headers => batch.headers(index)
      return opener.open(this.#source, { payload: batch.payload(index), headers })
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error
      throw positioned(error, { stream, topic, partition, offset: batch.offset(index) })
    }
  }
}

// What `console.log` shows: the decoded fields, not private words.
Object.defineProperty(BatchMessage.prototype, Symbol.for("nodejs.util.inspect.custom"), {
  value: BatchMessage.prototype.toJSON,
})

/** A malformed header block marks the record; damage of any other kind is thrown. */
function headersOf(source: MessageSource, index: number): Headers | DecodeError {
  try {
    return source.batch.headers(index)
  } catch (error) {
    if (error instanceof DecodeError) return error
    throw error
  }
}

function base64(bytes: Uint8Array | null): string | null {
  return bytes === null ? null : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64")
}
