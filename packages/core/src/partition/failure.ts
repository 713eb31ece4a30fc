import { MillraceError, StorageError } from "@millrace/contract"

/** What was thrown, as the error that it should have been: a driver's failures are all of the one root. */
export function asMillraceError(error: unknown): MillraceError {
  return error instanceof MillraceError
    ? error
    : new StorageError(`the driver failed: ${String(error)}`, { cause: error })
}
