import type { TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { checkName } from "../client/names.ts"
import type { Cursor } from "../cursor/cursor.ts"
import { openCursor } from "../cursor/log-cursor.ts"
import { TypedReader } from "../cursor/typed-reader.ts"
import type { SendResult } from "../producer/confirmation.ts"
import type { SendOptions } from "../producer/producer.ts"
import { publishOne } from "../producer/publish.ts"
import type { Codec } from "./codec.ts"

/** A topic whose payloads are encoded and decoded by a codec: `topic.json(codec)` (seed 000, "Typed handles and readers"). */
export class TypedTopic<T> {
  readonly #context: ClientContext
  readonly #topic: TopicName
  readonly #codec: Codec<T>

  constructor(context: ClientContext, topic: TopicName, codec: Codec<T>) {
    this.#context = context
    this.#topic = topic
    this.#codec = codec
  }

  /**
   * Encodes one value, sends it, and waits for its confirmation, with the connection's publish timeout and retries.
   * @throws InvalidError when the value has no encoding; else as `topic.publish().send()`
   */
  async publish(value: T, options?: SendOptions): Promise<SendResult> {
    return await publishOne(this.#context, this.#topic, this.#codec.encode(value), options)
  }

  /**
   * A reader of every partition from the first record on, with offsets of its own: not a consumer, and nothing is stored for it.
   * @param name What the reader is called, for people only.
   * @param batch The most records of one request. Default 1000.
   * @throws InvalidError for a name or a batch that cannot be right
   */
  async records(name: string, batch?: number): Promise<Cursor<T>> {
    checkName("reader", name, this.#context.session.manifest.limits)
    const cursor = await openCursor(this.#context, this.#topic, batch === undefined ? undefined : { batch })
    return new TypedReader(cursor, this.#codec)
  }
}
