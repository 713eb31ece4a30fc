import type { MillraceError } from "@millrace/contract"
import { backoffMs, type Clock } from "@millrace/runtime"
import { type AttemptSettings, attempt, longestBackoffMs, mayHaveHappened } from "../client/attempts.ts"
import { millraceError } from "../producer/sender.ts"

/** What a failure means for the producer. */
export type Consequence = "fenced" | "fatal" | "doubtful" | "abortable" | "again"

/** One question to the backend about a transaction. */
export interface Question<T> {
  /** How a time-out calls it: `committing of …`. */
  readonly what: string
  readonly request: () => Promise<T>
  /** It may be asked again although it may have happened: the answer is the same then. */
  readonly repeatable: boolean
}

/** These say for certain what became of a question that went unanswered before. */
const certain: ReadonlySet<string> = new Set(["transaction-aborted", "not-assigned", "history-changed"])

/**
 * Asks until there is an answer, within the retries. Once an attempt has ended in the dark, a later refusal that does not speak of the
 * transaction itself leaves it there: the error's outcome is unknown.
 * @throws MillraceError
 */
export async function ask<T>(
  clock: Clock,
  settings: AttemptSettings & { readonly signal?: AbortSignal },
  { what, request, repeatable }: Question<T>,
): Promise<T> {
  const { signal } = settings
  let inDoubt = false
  for (let retry = 0; ; retry++) {
    try {
      return await attempt(
        clock,
        { ...settings, retries: 0 },
        signal === undefined ? { what, request } : { what, request, signal },
      )
    } catch (thrown) {
      const error = millraceError(thrown)
      const unknown = error.outcome === "unknown"
      if (unknown) inDoubt = true
      const again = (error.retryable || unknown) && retry < settings.retries && (repeatable || !unknown)
      if (!again || signal?.aborted === true) throw inDoubt && !certain.has(error.kind) ? mayHaveHappened(error) : error
      await pause(clock, backoffMs(retry, settings.retryBackoffMs, longestBackoffMs), signal)
    }
  }
}

/** Ends early when the signal fires. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      timer.cancel()
      signal?.removeEventListener("abort", end)
      resolve()
    }
    const timer = clock.setTimer(ms, end)
    if (signal?.aborted === true) end()
    else signal?.addEventListener("abort", end)
  })
}

/**
 * - `fenced`, `fatal`: the producer is done with.
 * - `doubtful`: it may have happened.
 * - `abortable`: it did not, and never will: the transaction has to be aborted.
 * - `again`: it did not, and the same call may succeed later.
 */
export function consequenceOf(error: MillraceError): Consequence {
  switch (error.kind) {
    case "fenced":
      return "fenced"
    case "storage":
    case "corruption":
    case "closed":
    case "unsupported":
      return error.outcome === "unknown" ? "doubtful" : "fatal"
    default:
      if (error.outcome === "unknown") return "doubtful"
      return error.retryable ? "again" : "abortable"
  }
}
