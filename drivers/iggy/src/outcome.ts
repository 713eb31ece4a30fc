import { MillraceError, type Outcome, StorageError } from "@millrace/contract"

/**
 * The same failure, as that of a call of several steps: `rejected` when the failing step came before any that changes something, `unknown`
 * when it came behind one.
 */
export function withOutcome(error: unknown, outcome: Outcome): MillraceError {
  if (!(error instanceof MillraceError)) return new StorageError(String(error), { outcome, cause: error })
  if (error.outcome === outcome) return error
  const { kind, message, retryable, context } = error
  return new MillraceError(kind, message, { retryable, outcome, context, cause: error })
}
