import type { DecodeError } from "@millrace/contract"
import { BatchMessage, type Message, type MessageSource } from "../record/message.ts"
import type { RecordDecoder } from "./record-decoder.ts"
import { TypedDecodeError } from "./typed-decode-error.ts"
import type { TypedMessage } from "./typed-message.ts"

/** The record `index` of a source: with a value where the source has a decoder. To be opened before it is handed out. */
export function messageOf(source: MessageSource, index: number): BatchMessage {
  return source.decoder === undefined
    ? new BatchMessage(source, index)
    : new DecodedMessage(source, index, source.decoder)
}

/**
 * A message with its value, which is decoded when the message is opened: a record that cannot be decoded is known before it is handed out.
 * Its type is `TypedMessage` for those who get it.
 */
export class DecodedMessage extends BatchMessage {
  kind: TypedMessage<unknown>["kind"] | "raw" = "record"
  value: unknown = undefined
  /** Why it is raw. */
  error: DecodeError | undefined = undefined
  readonly #decoder: RecordDecoder

  constructor(source: MessageSource, index: number, decoder: RecordDecoder) {
    super(source, index)
    this.#decoder = decoder
  }

  override open(): this {
    super.open()
    if (this.#decode()) this.#decoder.rawCount++
    return this
  }

  /** Decoded anew, from bytes of its own: the value of the first may be the caller's by now. */
  protected override owner(source: MessageSource): Message {
    const message = new DecodedMessage(source, 0, this.#decoder)
    message.#decode()
    return message
  }

  /** @returns whether it is raw */
  #decode(): boolean {
    const decoder = this.#decoder
    const { payload } = this
    if (payload !== null) {
      try {
        this.value = decoder.value(payload, this)
      } catch (error) {
        if (!decoder.deliversRaw || !(error instanceof TypedDecodeError)) throw error
        this.kind = "raw"
        this.value = payload
        this.error = error
        return true
      }
    } else if (decoder.takesTombstones) this.value = decoder.tombstone(this)
    else this.kind = "tombstone"
    return false
  }
}

// What `console.log` shows, beside what any message shows.
Object.defineProperty(DecodedMessage.prototype, Symbol.for("nodejs.util.inspect.custom"), {
  value(this: DecodedMessage): object {
    const { kind, value } = this
    return { ...this.toJSON(), kind, value }
  },
})
