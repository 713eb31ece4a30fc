import { type ErrorContext, MillraceError } from "@millrace/contract"
import { topicText } from "../client/names.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import type { Confirmation } from "./confirmation.ts"

/** What a failed publish left behind. */
export interface PublishFailure {
  readonly stream: string
  readonly topic: string
  readonly committed: readonly Confirmation[]
  readonly unconfirmed: readonly OutgoingRecord[]
  readonly cause: MillraceError
}

/**
 * A publish that gave up (seed 000, "When a publish fails"). `retryable` and `outcome` are those of the cause: with outcome `unknown`
 * unconfirmed records may be stored all the same, their acknowledgement lost.
 *
 * Resend with `topic.batch(error.unconfirmed)`: the records carry the ids and the partitions of their attempts, so that a backend that
 * recognises ids leaves out what is already there.
 */
export class PublishFailedError extends MillraceError {
  protected static override readonly accepts: readonly "publish-failed"[] = ["publish-failed"]
  readonly stream: string
  readonly topic: string
  /** Ranges that the backend confirmed: do not publish these again. */
  readonly committed: readonly Confirmation[]
  /** Every record without a confirmation, from the failed request on; in the order of the call within each partition. */
  readonly unconfirmed: readonly OutgoingRecord[]

  constructor(failure: PublishFailure) {
    const { cause, unconfirmed, committed } = failure
    const confirmed = committed.reduce((sum, range) => sum + range.count, 0)
    const where = topicText({ stream: failure.stream, topic: failure.topic })
    super(
      "publish-failed",
      `publish to topic "${where}" failed: ${confirmed} confirmed, ${unconfirmed.length} unconfirmed: ${cause.message}`,
      { cause, retryable: cause.retryable, outcome: cause.outcome, context: contextOf(failure) },
    )
    this.stream = failure.stream
    this.topic = failure.topic
    this.committed = committed
    this.unconfirmed = unconfirmed
  }

  /** The failure that ended the last attempt. */
  publishCause(): Error {
    return this.cause as Error
  }
}

function contextOf(failure: PublishFailure): ErrorContext {
  const { partition } = failure.cause.context
  const place = { stream: failure.stream, topic: failure.topic }
  return partition === undefined ? place : { ...place, partition }
}
