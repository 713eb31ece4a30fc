import { DecodeError } from "@millrace/contract"
import { topicText } from "../client/names.ts"
import type { Codec } from "../codec/codec.ts"
import type { Message } from "../record/message.ts"
import type { Cursor, CursorResult } from "./cursor.ts"

/**
 * A cursor whose records are decoded (seed 000, "Typed handles and readers"). A record that does not decode is a result of its own, in
 * its place, and the next read goes past it. A tombstone is one too: the codec never sees it.
 */
export class TypedReader<T> implements Cursor<T> {
  readonly #cursor: Cursor<Message>
  readonly #codec: Codec<T>

  /** Takes the cursor over: disposing the reader disposes it. */
  constructor(cursor: Cursor<Message>, codec: Codec<T>) {
    this.#cursor = cursor
    this.#codec = codec
  }

  async next(): Promise<CursorResult<T>> {
    return this.#typed(await this.#cursor.next())
  }

  async poll(): Promise<CursorResult<T>[]> {
    return (await this.#cursor.poll()).map((result) => this.#typed(result))
  }

  async *stream(): AsyncIterable<CursorResult<T>> {
    for await (const result of this.#cursor.stream()) yield this.#typed(result)
  }

  async nextWithin(timeoutMs: number): Promise<CursorResult<T>> {
    return this.#typed(await this.#cursor.nextWithin(timeoutMs))
  }

  get offsets(): ReadonlyMap<number, bigint> {
    return this.#cursor.offsets
  }

  restore(offsets: ReadonlyMap<number, bigint>): void {
    this.#cursor.restore(offsets)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#cursor[Symbol.asyncDispose]())
  }

  #typed(result: CursorResult<Message>): CursorResult<T> {
    if (result.kind !== "record") return result
    const { message } = result
    const payload = message.payload
    if (payload === null) return { kind: "tombstone", message }
    try {
      return { kind: "record", value: this.#codec.decode(payload), message }
    } catch (cause) {
      return {
        kind: "error",
        error: decodeError(message, { codec: this.#codec.name, cause }),
        position: message.position,
      }
    }
  }
}

function decodeError(
  message: Message,
  { codec, cause }: { readonly codec: string; readonly cause: unknown },
): DecodeError {
  const { stream, topic } = message
  const { partition, offset } = message.position
  const why = cause instanceof Error ? cause.message : String(cause)
  return new DecodeError(
    `offset ${offset} of partition ${partition} of topic "${topicText({ stream, topic })}" does not decode as ${codec}: ${why}`,
    { cause, context: { stream, topic, partition, offset } },
  )
}
