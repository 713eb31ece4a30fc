import type { ContentType } from "../record/metadata.ts"

/** Between values and payloads. */
export interface Codec<T> {
  /** What this codec is called in error messages: `JSON`. */
  readonly name: string
  /** What `publishBatch().addEncoded` says of the payloads; absent: nothing. */
  readonly contentType?: ContentType
  /** @throws InvalidError when the value has no encoding. */
  encode(value: T): Uint8Array
  /** May throw anything: readers make a DecodeError with the record's position of it. Never called for a tombstone. */
  decode(payload: Uint8Array): T
}
