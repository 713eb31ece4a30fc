import { DecodeError } from "@millrace/contract"
import { isThenable } from "../handler/observed.ts"
import type { Codec, CodecRecord } from "./codec.ts"

/**
 * A payload's value. Every reader and consumer decodes through this one door, whoever wrote the codec.
 * @throws DecodeError when the codec answers with a promise, whose rejection is observed; else whatever the codec throws
 */
export function decodePayload<T>(codec: Codec<T>, payload: Uint8Array, record?: CodecRecord): T {
  return settled(codec.decode(payload, record))
}

/**
 * The value itself, unless it is a promise: records are decoded while they are read, and nothing waits for them.
 * @throws DecodeError for anything with a `then` method
 */
export function settled<T>(value: T): T {
  if (typeof value !== "object" || !isThenable(value)) return value
  // The answer is not wanted any more, and its failure is nobody's.
  Promise.resolve(value).catch(() => {})
  throw new DecodeError("its decode answers with a promise, and must answer at once")
}
