import type { Headers } from "@millrace/contract"
import type { ContentType, RecordMetadata } from "../record/metadata.ts"

/** What a codec may look at besides the payload: every `Message` is one. */
export interface CodecRecord {
  readonly payload: Uint8Array | null
  readonly headers: Headers
}

/**
 * Between values and payloads (seed 000, "Typed handles and readers"). A codec is synchronous and keeps no state between calls, so that
 * one serves any number of readers and producers at once.
 *
 * A tombstone (a record whose payload is `null`) goes past the codec: readers and senders handle it themselves, unless the codec has
 * `decodeTombstone`.
 */
export interface Codec<T> {
  /** What this codec is called in error messages: `JSON`. */
  readonly name: string
  /** What `publishBatch().addEncoded` says of the payloads; absent: nothing. */
  readonly contentType?: ContentType
  /**
   * A payload of its own: nobody changes it afterwards, and the codec keeps no hold of it.
   * @throws InvalidError when the value has no encoding
   */
  encode(value: T): Uint8Array
  /**
   * May throw anything: readers make a DecodeError with the record's position of it. `T` shares no memory with `payload`, which is a
   * view of a buffer that may be used again.
   * @param record What the payload is of, for codecs that look at its headers. Every reader and consumer gives it.
   */
  decode(payload: Uint8Array, record?: CodecRecord): T
  /** Opts in to tombstones: the value that a record without a payload stands for. Absent: the codec is never asked about them. */
  decodeTombstone?(record?: CodecRecord): T
  /**
   * What the headers of a record with this payload must say beside the content type: the id of its schema, an Arrow fingerprint.
   * Absent: nothing.
   */
  describe?(payload: Uint8Array): Pick<RecordMetadata, "schemaId" | "schemaFingerprint">
  /**
   * Fetches what decoding these records needs and is not there yet, as schemas. Asked once a batch, before its first `decode`; answers
   * `undefined` when nothing is missing, which is the usual case. What does not exist is for `decode` of that record to report. A
   * rejection says that it could not be fetched: then no record of the batch is decoded, and the reader stays where it is.
   */
  prepare?(records: Iterable<CodecRecord>, options?: { readonly signal?: AbortSignal }): Promise<void> | undefined
}
