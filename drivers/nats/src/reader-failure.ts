/** Which failures end the reading of a partition, and which only interrupt it. */
import { MillraceError } from "@millrace/contract"

/** Failures that no waiting mends. Everything else is tried again: the server may be starting, or electing a leader. */
const final: ReadonlySet<string> = new Set([
  "closed",
  "not-found",
  "history-changed",
  "offset-out-of-range",
  "permission",
  "invalid",
  "protocol",
])

/** Whether a partition cannot be read until it is set anew. */
export function isFinal(error: MillraceError): boolean {
  return final.has(error.kind)
}

/** Any thrown value. What is not a `MillraceError` becomes `storage`. */
export function asMillraceError(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new MillraceError("storage", String(error), { cause: error })
}
