import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions, GroupConsumerOptions } from "../consumer/consumer-options.ts"
import type { GroupReader } from "../group/group-reader.ts"
import type { GroupReaderOptions } from "../group/group-reader-options.ts"
import type { Message } from "../record/message.ts"
import type { DecodeFailures, OnDecodeError } from "./decoding.ts"
import type { TypedMessage } from "./typed-message.ts"

/**
 * A consumer whose messages have values (seed 002, "Typed consumer"): everything that a consumer does, in the same way. Records are decoded
 * one by one as they are handed out, so that one that does not decode is dealt with in its place, as `onDecodeError` says.
 *
 * @typeParam T The values.
 * @typeParam M The messages: with `onDecodeError: "deliver-raw"` some may be `raw`.
 */
export interface TypedConsumer<T, M extends Message = TypedMessage<T>> extends Consumer<M> {
  /** How many records did not decode, since the consumer was made, by what became of them. */
  readonly decodeFailures: DecodeFailures
}

/** A group's reader whose pages have values. @typeParam M As of a typed consumer */
export interface TypedGroupReader<T, M extends Message = TypedMessage<T>> extends GroupReader<M> {
  /** As of a typed consumer. */
  readonly decodeFailures: DecodeFailures
}

/** What a typed consumer or reader can be told beside what any can. */
export interface DecodeOptions {
  /** What to do about a record that does not decode. Default `"stop"`: its error is thrown in its place. */
  readonly onDecodeError?: OnDecodeError
}

/** The same without `"deliver-raw"`, which changes what the messages are. */
export interface ValuesOnly {
  readonly onDecodeError?: Exclude<OnDecodeError, "deliver-raw">
}

/** Options of `TypedTopic.consumer`. */
export interface TypedConsumerOptions extends ConsumerOptions, DecodeOptions {}

/** Options of `TypedConsumerGroup.consumer`. */
export interface TypedGroupConsumerOptions extends GroupConsumerOptions, DecodeOptions {}

/** Options of `TypedConsumerGroup.reader`. */
export interface TypedGroupReaderOptions extends GroupReaderOptions, DecodeOptions {}

/** The options apart: what is about decoding, and what any consumer takes and checks. @throws InvalidError for what is no object */
export function withoutDecoding<O extends DecodeOptions>(
  what: string,
  options: O | undefined,
): { readonly onDecodeError: OnDecodeError | undefined; readonly rest: Omit<O, "onDecodeError"> | undefined } {
  if (options === undefined) return { onDecodeError: undefined, rest: undefined }
  if (typeof options !== "object" || options === null) {
    throw new InvalidError(`${what}: options must be an object, not ${shown(options)}`)
  }
  const { onDecodeError, ...rest } = options
  return { onDecodeError, rest }
}
