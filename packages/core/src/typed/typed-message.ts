import type { DecodeError } from "@millrace/contract"
import type { Message } from "../record/message.ts"

/**
 * A message with its value, as a typed consumer gives it (seed 002, "Typed consumer"). `kind` says what there is: the value of a record, or a
 * tombstone, which has none.
 */
export type TypedMessage<T> = DecodedRecord<T> | Tombstone

/** What a typed consumer gives with `onDecodeError: "deliver-raw"`: `kind` says also which records did not decode. */
export type TypedOrRawMessage<T> = TypedMessage<T> | RawRecord

/** A record that was decoded. */
export interface DecodedRecord<T> extends Message {
  readonly kind: "record"
  readonly value: T
}

/** A record without a payload: its key was deleted, where topics are compacted. The codec has not seen it. */
export interface Tombstone extends Message {
  readonly kind: "tombstone"
  readonly payload: null
  readonly value: undefined
}

/** A record whose payload does not decode, as it is. */
export interface RawRecord extends Message {
  readonly kind: "raw"
  readonly payload: Uint8Array
  /** The payload. */
  readonly value: Uint8Array
  /** Why it does not decode. */
  readonly error: DecodeError
}
