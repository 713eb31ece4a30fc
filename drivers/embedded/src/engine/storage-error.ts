/** What a failure of SQLite or of the file system means for the caller. */
import {
  CorruptionError,
  DiskFullError,
  type ErrorDetails,
  MillraceError,
  PermissionError,
  StorageError,
  TimeoutError,
} from "@millrace/contract"

/** SQLite's primary result codes (https://www.sqlite.org/rescode.html). */
const primary = {
  perm: 3,
  busy: 5,
  locked: 6,
  readonly: 8,
  ioerr: 10,
  corrupt: 11,
  full: 13,
  protocol: 15,
  auth: 23,
  notadb: 26,
}

/** The extended code of SQLITE_IOERR that says that the shared memory file could not grow: SHMSIZE. */
const ioErrorsOfAFullDisk: readonly number[] = [4874]

/** The result code of SQLite, or undefined for an error from elsewhere. */
export function sqliteCode(error: unknown): number | undefined {
  const code = (error as { errcode?: unknown } | null)?.errcode
  return typeof code === "number" ? code : undefined
}

/** Whether another connection holds a lock: try again. */
export function isBusy(error: unknown): boolean {
  const code = (sqliteCode(error) ?? 0) & 0xff
  return code === primary.busy || code === primary.locked || code === primary.protocol
}

/** Whether the failure concerns the whole transaction, not one command in it: a full disk, an I/O error, no memory. */
export function isFatal(error: unknown): boolean {
  const code = sqliteCode(error)
  if (code !== undefined) return ![1, primary.corrupt, 18, 19, 20, 25].includes(code & 0xff)
  return isFileError(error)
}

/** Whether the system refused a call on a file. */
export function isFileError(error: unknown): boolean {
  return typeof (error as NodeJS.ErrnoException | null)?.syscall === "string"
}

/**
 * The error as the contract wants it.
 * @param doing What failed, as the beginning of a sentence: `the commit`, `opening the store at "…"`.
 */
export function storageError(error: unknown, doing: string, details: ErrorDetails = {}): MillraceError {
  if (error instanceof MillraceError) return error
  const message = `${doing} failed: ${text(error)}`
  const whole = { cause: error, ...details }
  const code = sqliteCode(error)
  if (code === undefined) return fileError(error, message, whole)
  if (ioErrorsOfAFullDisk.includes(code)) return new DiskFullError(message, whole)
  switch (code & 0xff) {
    case primary.full:
      return new DiskFullError(message, whole)
    case primary.corrupt:
    case primary.notadb:
      return new CorruptionError(message, whole)
    case primary.perm:
    case primary.readonly:
    case primary.auth:
      return new PermissionError(message, whole)
    case primary.busy:
    case primary.locked:
    case primary.protocol:
      return new TimeoutError(message, { outcome: "rejected", ...whole })
    default:
      return new StorageError(message, whole)
  }
}

function fileError(error: unknown, message: string, details: ErrorDetails): MillraceError {
  switch ((error as NodeJS.ErrnoException | null)?.code) {
    case "ENOSPC":
    case "EDQUOT":
    case "EFBIG":
      return new DiskFullError(message, details)
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return new PermissionError(message, details)
    default:
      return new StorageError(message, details)
  }
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
