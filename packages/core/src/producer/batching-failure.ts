import type { TopicName } from "@millrace/contract"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { joinedFailure, PublishFailedError } from "./publish-failed.ts"
import { millraceError } from "./sender.ts"

/** What a flush failed with, as one that names its records: they were accepted, so that nothing else knows of them any more. */
export function flushFailure(
  error: unknown,
  name: TopicName,
  unconfirmed: readonly OutgoingRecord[],
): PublishFailedError {
  if (error instanceof PublishFailedError) return error
  const { stream, topic } = name
  return new PublishFailedError({ stream, topic, committed: [], unconfirmed, cause: millraceError(error) })
}

/** Both as one, in their order; each may be a failure that joins several. */
export function joined(
  earlier: PublishFailedError | undefined,
  later: PublishFailedError | undefined,
): PublishFailedError | undefined {
  if (earlier === undefined || later === undefined) return earlier ?? later
  return joinedFailure([...(earlier.failures ?? [earlier]), ...(later.failures ?? [later])])
}

/** A kept failure for the send that met it, with that send's own record, which was not queued. */
export function withRecords(kept: PublishFailedError, records: readonly OutgoingRecord[]): PublishFailedError {
  const { stream, topic, committed, unconfirmed, outcome, failures } = kept
  return new PublishFailedError({
    stream,
    topic,
    committed,
    unconfirmed: [...unconfirmed, ...records],
    cause: millraceError(kept.cause),
    outcome,
    ...(failures === undefined ? {} : { failures }),
  })
}
