import { DecodeError } from "@millrace/contract"
import { topicText } from "../client/names.ts"
import { thrownText } from "../handler/handler-failure.ts"
import type { Message } from "../record/message.ts"

/**
 * A record whose payload its codec does not decode (seed 000, "Typed handles and readers"). `context` has the position, `cause` is what
 * the codec threw. Of a record that does not decrypt there is only a `DecodeError`: its payload is nobody's to see.
 */
export class TypedDecodeError extends DecodeError {
  /** The record as it was read, with its headers, and its payload as bytes. Like any message it keeps its batch in memory: `copy()` it. */
  declare readonly record: Message

  constructor(record: Message, failure: { readonly codec: string; readonly cause: unknown }) {
    const { stream, topic } = record
    const { partition, offset } = record.position
    const { codec, cause } = failure
    super(
      `offset ${offset} of partition ${partition} of topic "${topicText({ stream, topic })}" does not decode as ${codec}: ${thrownText(cause)}`,
      { cause, context: { stream, topic, partition, offset } },
    )
    // Whoever logs the error has no use for the bytes.
    Object.defineProperty(this, "record", { value: record })
  }

  /** The raw bytes; `null` for a tombstone. */
  get payload(): Uint8Array | null {
    return this.record.payload
  }
}
