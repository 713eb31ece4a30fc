import { type MillraceError, RecordTooLargeError } from "@millrace/contract"
import { apiCode } from "./api-error.ts"
import { reservedHeaderBytes } from "./batch-writer.ts"
import { preamble } from "./header-block.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"
import { described, type TopicLayouts } from "./topic-layout.ts"

/**
 * The failure of a batch that holds a record above its stream's `max_msg_size`, with both numbers. The server says so of a message
 * that it answers; of an atomic batch it answers the first and the last, and says of any other only that the batch is incomplete.
 * @returns `error` as it is when it has another reason, or when the stream cannot be asked.
 */
export async function explainTooLarge(
  error: MillraceError,
  batch: NatsSealedBatch,
  layouts: TopicLayouts,
): Promise<MillraceError> {
  const { errCode } = error.context
  if (errCode !== apiCode.batchIncomplete && errCode !== apiCode.messageTooLarge) return error
  const { stream, topic, partition } = batch.target
  let limitBytes: number | undefined
  try {
    limitBytes = (await layouts.partition({ stream, topic, partition })).info.config.max_msg_size
  } catch {
    return error
  }
  const sizeBytes = largestRecordBytes(batch)
  const added = batch.count > 1 ? reservedHeaderBytes : 0
  if (limitBytes === undefined || limitBytes < 0 || sizeBytes + added <= limitBytes) return error
  return new RecordTooLargeError(
    `publishing to topic ${described(batch.target)}, partition ${partition}: the largest record takes ${sizeBytes} bytes with its headers, and the stream takes ${limitBytes} in one message. Raise max_msg_size of the stream, or send smaller records`,
    { context: { stream, topic, partition, errCode, sizeBytes, limitBytes }, cause: error },
  )
}

/** Headers and payload together, as the server counts them. */
function largestRecordBytes(batch: NatsSealedBatch): number {
  const { starts, headBytes } = batch.content
  let largest = 0
  for (let index = batch.from; index < batch.from + batch.count; index++) {
    const head = (headBytes[index] as number) > 0 ? preamble.length : 0
    largest = Math.max(largest, head + (starts[index + 1] as number) - (starts[index] as number))
  }
  return largest
}
