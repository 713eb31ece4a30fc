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
  /** Default: the cause's. */
  readonly outcome?: MillraceError["outcome"]
  /** Behind the message. */
  readonly note?: string
  readonly failures?: readonly PublishFailedError[]
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
  /** The failures that this one joins, one a batch, in their order; each names its own topic. Absent where there is but one. */
  readonly failures?: readonly PublishFailedError[]

  constructor(failure: PublishFailure) {
    const { cause, unconfirmed, committed, note = "", failures, outcome = cause.outcome } = failure
    const confirmed = committed.reduce((sum, range) => sum + range.count, 0)
    const where = topicText({ stream: failure.stream, topic: failure.topic })
    super(
      "publish-failed",
      `publish to topic "${where}" failed: ${confirmed} confirmed, ${unconfirmed.length} unconfirmed: ${cause.message}${note}`,
      { cause, retryable: cause.retryable, outcome, context: contextOf(failure) },
    )
    this.stream = failure.stream
    this.topic = failure.topic
    this.committed = committed
    this.unconfirmed = unconfirmed
    if (failures !== undefined) this.failures = failures
  }

  /** The failure that ended the last attempt. */
  publishCause(): Error {
    return this.cause as Error
  }
}

/**
 * Several failures as one: the place and the cause of the first, the ranges and records of all (seed 000, "Batching producers"). The
 * outcome is unknown as soon as that of one is.
 * @param note What else there is to say, behind the message.
 */
export function joinedFailure(failures: readonly PublishFailedError[], note: string = ""): PublishFailedError {
  const [first] = failures as readonly [PublishFailedError]
  if (failures.length === 1 && note === "") return first
  return new PublishFailedError({
    stream: first.stream,
    topic: first.topic,
    committed: failures.flatMap(({ committed }) => committed),
    unconfirmed: failures.flatMap(({ unconfirmed }) => unconfirmed),
    cause: first.cause as MillraceError,
    outcome: failures.some(({ outcome }) => outcome === "unknown") ? "unknown" : "rejected",
    note,
    ...(failures.length === 1 ? {} : { failures }),
  })
}

function contextOf(failure: PublishFailure): ErrorContext {
  const { partition } = failure.cause.context
  const place = { stream: failure.stream, topic: failure.topic }
  return partition === undefined ? place : { ...place, partition }
}
