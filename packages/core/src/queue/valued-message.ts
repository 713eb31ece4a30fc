import type { Message, MessageSource } from "../record/message.ts"
import { messageOf } from "../typed/decoded-message.ts"
import type { RecordDecoder } from "../typed/record-decoder.ts"
import type { TypedMessage } from "../typed/typed-message.ts"
import { type DeliveryTerms, type MessageDesk, QueuedMessage, type QueueMessage } from "./queue-message.ts"

/** A message of a typed topic's queue: `kind` says whether it has a value or is a tombstone. */
export type TypedQueueMessage<T> = QueueMessage & TypedMessage<T>

/** One delivery with its value, which is decoded when the message is opened. Its type is `TypedQueueMessage` for those who get it. */
export class ValuedMessage extends QueuedMessage {
  kind: TypedMessage<unknown>["kind"] = "record"
  value: unknown = undefined
  readonly #decoder: RecordDecoder

  constructor(desk: MessageDesk, source: MessageSource, terms: DeliveryTerms & { readonly decoder: RecordDecoder }) {
    super(desk, source, terms)
    this.#decoder = terms.decoder
  }

  /** `open` without the value. @throws DecodeError with the record's position */
  decrypt(): void {
    super.open()
  }

  /** @throws TypedDecodeError beside what any message throws */
  override open(): this {
    this.decrypt()
    const { payload } = this
    if (payload !== null) this.value = this.#decoder.value(payload, this)
    else if (this.#decoder.takesTombstones) this.value = this.#decoder.tombstone(this)
    else this.kind = "tombstone"
    return this
  }

  /** Decoded anew, from bytes of its own. */
  protected override owner(source: MessageSource): Message {
    return messageOf(source, 0).open()
  }
}

// What `console.log` shows, beside what any message shows.
Object.defineProperty(ValuedMessage.prototype, Symbol.for("nodejs.util.inspect.custom"), {
  value(this: ValuedMessage): object {
    const { kind, value } = this
    return { ...this.toJSON(), kind, value }
  },
})
