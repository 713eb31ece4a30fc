import { DecodeError, type TopicName } from "@millrace/contract"
import { topicText } from "../client/names.ts"

/** The error of a record that does not decrypt, with its position. */
export function positioned(
  error: DecodeError,
  place: TopicName & { readonly partition: number; readonly offset: bigint },
): DecodeError {
  const { stream, topic, partition, offset } = place
  return new DecodeError(
    `offset ${offset} of partition ${partition} of topic "${topicText({ stream, topic })}" does not decrypt: ${error.message}`,
    { cause: error.cause ?? error, context: { ...error.context, stream, topic, partition, offset } },
  )
}
