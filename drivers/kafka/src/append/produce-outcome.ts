/** What a broker's answer for one batch means. */
import {
  type AppendResult,
  type ErrorContext,
  MillraceError,
  RecordTooLargeError,
  type TopicName,
} from "@millrace/contract"
import type { TopicFact } from "../catalog/topic-facts.ts"
import { errorCode, kafkaError } from "../errors.ts"
import type { ProduceResponsePartitionProduceResponse } from "../protocol/messages.generated.ts"

/** One batch as far as messages speak of it. */
export interface BatchInQuestion {
  readonly topic: TopicName
  readonly partition: number
  readonly count: number
  readonly bytes: number
  readonly fact: TopicFact | undefined
}

/**
 * The result, or the failure. A batch that the broker recognises has the offset that it got first, as if it were new; only when the
 * broker remembers it no longer in full (DUPLICATE_SEQUENCE_NUMBER) the offset is not told.
 */
export function produceOutcome(
  answer: ProduceResponsePartitionProduceResponse,
  batch: BatchInQuestion,
): AppendResult | MillraceError {
  const { errorCode: code, baseOffset, logAppendTimeMs } = answer
  if (code === errorCode.none) {
    return {
      ...(baseOffset < 0n ? {} : { base: baseOffset }),
      contiguous: baseOffset >= 0n,
      duplicates: 0,
      // With the sender's times it is told too, for a batch that was there already, and is that batch's.
      ...(batch.fact?.brokerTime === true && logAppendTimeMs >= 0n ? { timestampMicros: logAppendTimeMs * 1000n } : {}),
    }
  }
  if (code === errorCode.duplicateSequence) return { contiguous: false, duplicates: batch.count }
  if (code === errorCode.messageTooLarge || code === errorCode.recordListTooLarge) return tooLarge(code, batch)
  const reasons = answer.recordErrors.map((record) => `record ${record.batchIndex}: ${record.batchIndexErrorMessage}`)
  const detail = [answer.errorMessage, ...reasons.slice(0, 3)].filter((text) => text !== null).join("; ")
  return kafkaError(code, { what: appending(batch), context: contextOf(batch), detail })
}

/** `appending 3 records to partition 0 of topic "s/t"` */
export function appending(batch: Pick<BatchInQuestion, "topic" | "partition" | "count">): string {
  const { topic, partition, count } = batch
  const name = topic.stream === "" ? topic.topic : `${topic.stream}/${topic.topic}`
  return `appending ${count === 1 ? "1 record" : `${count} records`} to partition ${partition} of topic ${JSON.stringify(name)}`
}

export function contextOf(batch: Pick<BatchInQuestion, "topic" | "partition">): ErrorContext {
  return { stream: batch.topic.stream, topic: batch.topic.topic, partition: batch.partition }
}

function tooLarge(code: number, batch: BatchInQuestion): RecordTooLargeError {
  const limitBytes = batch.fact?.limitBytes
  const limit = limitBytes === undefined ? "" : ` (${limitBytes})`
  const where = code === errorCode.messageTooLarge ? `max.message.bytes${limit}` : "segment.bytes"
  const advice =
    batch.count === 1
      ? `raise ${where.split(" ")[0]} of the topic, or send less in one record`
      : "it can be sent in parts"
  return new RecordTooLargeError(
    `${appending(batch)} failed: the batch has ${batch.bytes} bytes, more than the topic's ${where}; ${advice}`,
    {
      context: {
        ...contextOf(batch),
        sizeBytes: batch.bytes,
        ...(limitBytes === undefined ? {} : { limitBytes }),
      },
    },
  )
}

/** The failure of a batch whose topic is another one now, or none. */
export function otherTopic(batch: BatchInQuestion, why: string): MillraceError {
  return new MillraceError("not-found", `${appending(batch)} failed: ${why}`, { context: contextOf(batch) })
}
