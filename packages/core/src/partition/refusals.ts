/**
 * Failures by which a backend refuses a partition: it is not there, not ours, or not allowed. Asking again at once would be refused
 * again, and asking for ever would only trouble the backend (seed 001, "Read errors"; table 2.5 of the options).
 */
import {
  AuthenticationError,
  type ErrorDetails,
  type ErrorKind,
  type MillraceError,
  NotAssignedError,
  NotFoundError,
  PermissionError,
} from "@millrace/contract"

/** After so many refusals in a row a partition is not read again before `seek`. */
export const refusalsToStop = 6

const classes: Partial<Record<ErrorKind, new (message: string, details?: ErrorDetails) => MillraceError>> = {
  authentication: AuthenticationError,
  "not-assigned": NotAssignedError,
  "not-found": NotFoundError,
  permission: PermissionError,
}

/** Whether the backend refuses to serve the partition, rather than failing at it. */
export function isRefusal(error: MillraceError): boolean {
  return classes[error.kind] !== undefined
}

/** The refusal as the one that stops the partition: of the same kind, and saying what starts it again. */
export function stoppedError(error: MillraceError): MillraceError {
  const SameClass = classes[error.kind]
  if (SameClass === undefined) return error
  return new SameClass(
    `${error.message} (${refusalsToStop} times in a row: the partition is not read again before consumer.seek)`,
    { cause: error, context: error.context, outcome: error.outcome },
  )
}
