import type { TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { Codec } from "../codec/codec.ts"
import type { Cursor, CursorResult } from "../cursor/cursor.ts"
import type { CursorView } from "../cursor/cursor-view.ts"
import { LogCursor } from "../cursor/log-cursor.ts"
import type { BatchMessage } from "../record/message.ts"
import { RecordDecoder } from "./record-decoder.ts"

/**
 * A cursor whose records are decoded (seed 000, "Typed handles and readers"). A record that does not decode is a result of its own, in
 * its place, and the next read goes past it. A tombstone is one too: the codec does not see it, unless it asks for tombstones.
 */
export type TypedReader<T> = Cursor<T>

/**
 * Opens a typed reader over every partition of a topic.
 * @param of.name What the reader is called in errors. @param of.batch The most records of one request. Default 1000.
 * @throws InvalidError for a batch out of range
 */
export function openTypedReader<T>(
  context: ClientContext,
  topic: TopicName,
  of: { readonly name: string; readonly codec: Codec<T>; readonly batch?: number | undefined },
): TypedReader<T> {
  const { name, codec, batch } = of
  return new LogCursor(context, topic, {
    what: `reader ${shown(name)} of topic "${topicText(topic)}"`,
    options: batch === undefined ? undefined : { batch },
    view: new DecodingView(codec),
  })
}

class DecodingView<T> implements CursorView<T> {
  readonly #decoder: RecordDecoder<T>
  readonly prepare: CursorView<T>["prepare"]

  constructor(codec: Codec<T>) {
    this.#decoder = new RecordDecoder(codec)
    this.prepare = codec.prepare === undefined ? undefined : (messages, options) => codec.prepare?.(messages(), options)
  }

  result(message: BatchMessage): CursorResult<T> {
    const decoder = this.#decoder
    const { payload } = message
    if (payload !== null) return { kind: "record", value: decoder.value(payload, message), message }
    if (!decoder.takesTombstones) return { kind: "tombstone", message }
    return { kind: "record", value: decoder.tombstone(message), message }
  }
}
