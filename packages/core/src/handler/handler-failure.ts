import { type ErrorContext, MillraceError, type TopicPartition } from "@millrace/contract"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"

/** Where a failure happened. */
export interface FailurePlace extends TopicPartition {
  readonly offset: bigint | undefined
}

/** What a handler threw, as the error that `run` rejects with and `onError` is told. `cause` is what was thrown. */
export function handlerFailure(
  what: string,
  place: FailurePlace,
  attempt: { readonly attempt: number; readonly attempts: number; readonly thrown: unknown },
): MillraceError {
  const { thrown, attempts } = attempt
  const tried = attempts === 1 ? "" : ` in attempt ${attempt.attempt} of ${attempts}`
  return new MillraceError(
    "handler",
    `${what}: the handler failed at ${placeText(place)}${tried}: ${thrownText(thrown)}`,
    {
      cause: thrown,
      context: { ...contextOf(place), attempt: attempt.attempt },
    },
  )
}

/** The place as errors carry it. */
export function contextOf({ offset, stream, topic, partition }: FailurePlace): ErrorContext {
  return offset === undefined ? { stream, topic, partition } : { stream, topic, partition, offset }
}

/** `offset 5 of partition 0 of topic "s/t"`. */
export function placeText({ stream, topic, partition, offset }: FailurePlace): string {
  const where = `partition ${partition} of topic "${topicText({ stream, topic })}"`
  return offset === undefined ? where : `offset ${offset} of ${where}`
}

/** What was thrown, on one line, whatever it is. */
export function thrownText(thrown: unknown): string {
  try {
    if (thrown instanceof Error) return thrown.message === "" ? thrown.name : String(thrown.message)
    return `it threw ${shown(thrown)}`
  } catch {
    return "it threw something that cannot be shown"
  }
}

/** Of an error of Millrace its kind, of another its name, else its type. */
export function thrownKind(thrown: unknown): string {
  try {
    if (thrown instanceof MillraceError) return thrown.kind
    if (thrown instanceof Error) return String(thrown.name)
  } catch {
    // Its own properties throw.
  }
  return typeof thrown
}
