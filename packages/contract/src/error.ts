/**
 * The one error root. Every failure that leaves Millrace is a `MillraceError` that says what happened (`kind`), whether the
 * same call may succeed later (`retryable`), and whether the backend may have done it (`outcome`).
 */

/** What the caller may do next, by kind: `[retryable, outcome]` unless the thrower knows better. */
const kinds: Record<ErrorKind, readonly [retryable: boolean, outcome: Outcome]> = {
  invalid: [false, "rejected"],
  closed: [false, "rejected"],
  unsupported: [false, "rejected"],
  "not-found": [false, "rejected"],
  "already-exists": [false, "rejected"],
  authentication: [false, "rejected"],
  permission: [false, "rejected"],
  connection: [true, "rejected"],
  timeout: [true, "unknown"],
  cancelled: [false, "rejected"],
  "record-too-large": [false, "rejected"],
  "buffer-full": [true, "rejected"],
  throttled: [true, "rejected"],
  "not-leader": [true, "rejected"],
  "publish-failed": [false, "rejected"],
  decode: [false, "rejected"],
  fenced: [false, "rejected"],
  "not-assigned": [false, "rejected"],
  "history-changed": [false, "rejected"],
  "offset-out-of-range": [false, "rejected"],
  sequence: [false, "rejected"],
  "transaction-aborted": [false, "rejected"],
  "transaction-state": [false, "rejected"],
  storage: [false, "rejected"],
  "disk-full": [true, "rejected"],
  corruption: [false, "rejected"],
  protocol: [false, "unknown"],
  handler: [false, "rejected"],
}

/** The class of a failure. The set is closed: a new kind is a change of the contract. */
export type ErrorKind =
  | "invalid"
  | "closed"
  | "unsupported"
  | "not-found"
  | "already-exists"
  | "authentication"
  | "permission"
  | "connection"
  | "timeout"
  | "cancelled"
  | "record-too-large"
  | "buffer-full"
  | "throttled"
  | "not-leader"
  | "publish-failed"
  | "decode"
  | "fenced"
  | "not-assigned"
  | "history-changed"
  | "offset-out-of-range"
  | "sequence"
  | "transaction-aborted"
  | "transaction-state"
  | "storage"
  | "disk-full"
  | "corruption"
  | "protocol"
  | "handler"

/** `rejected`: the backend did not do it. `unknown`: it may have (a lost acknowledgement, a time-out after sending). */
export type Outcome = "rejected" | "unknown"

/** The things a failure speaks of. Only what applies is present. */
export interface ErrorContext {
  readonly stream?: string
  readonly topic?: string
  readonly partition?: number
  readonly group?: string
  readonly consumer?: string
  readonly offset?: bigint
  /** The first offset behind what cannot be read at `offset`, where that is known. */
  readonly nextOffset?: bigint
  readonly [detail: string]: unknown
}

/** What a thrower may add to a kind and a message; absent values take the kind's own. */
export interface ErrorDetails {
  readonly retryable?: boolean
  readonly outcome?: Outcome
  readonly context?: ErrorContext
  readonly cause?: unknown
}

const mark: unique symbol = Symbol.for("@millrace/error") as never

/**
 * The root of all failures. `instanceof` asks a global symbol and the kind, not the prototype, so that two copies of the
 * package in one process agree.
 */
export class MillraceError extends Error {
  readonly kind: ErrorKind
  readonly retryable: boolean
  readonly outcome: Outcome
  readonly context: ErrorContext

  constructor(kind: ErrorKind, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    const [retryable, outcome] = kinds[kind]
    this.kind = kind
    this.retryable = details.retryable ?? retryable
    this.outcome = details.outcome ?? outcome
    this.context = details.context ?? {}
    this.name = new.target.name
    Object.defineProperty(this, mark, { value: true })
  }

  /** Kinds that `instanceof` accepts for this class; absent on the root, which accepts all. */
  protected static readonly accepts?: readonly ErrorKind[]

  static override [Symbol.hasInstance](value: unknown): boolean {
    if (typeof value !== "object" || value === null || !(mark in value)) return false
    if (this === MillraceError) return true
    const own = Object.hasOwn(this, "accepts") ? this.accepts : undefined
    if (own === undefined) return Function.prototype[Symbol.hasInstance].call(this, value)
    return own.includes((value as unknown as MillraceError).kind)
  }
}

/** An argument, option or call that can never succeed as it is. */
export class InvalidError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["invalid", "closed"]
  constructor(message: string, details?: ErrorDetails, kind: "invalid" | "closed" = "invalid") {
    super(kind, message, details)
  }
}

/** The handle was shut down; an `InvalidError` too. */
export class ClosedError extends InvalidError {
  protected static override readonly accepts: readonly ErrorKind[] = ["closed"]
  constructor(message: string, details?: ErrorDetails) {
    super(message, details, "closed")
  }
}

/** The backend lacks the capability. The message names the backend, the reason, and what to use instead. */
export class UnsupportedError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["unsupported"]
  constructor(message: string, details?: ErrorDetails) {
    super("unsupported", message, details)
  }
}

/** The stream, topic, partition, group or value does not exist. */
export class NotFoundError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["not-found"]
  constructor(message: string, details?: ErrorDetails) {
    super("not-found", message, details)
  }
}

/** Somebody else has created it. `ensure` treats this as success. */
export class AlreadyExistsError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["already-exists"]
  constructor(message: string, details?: ErrorDetails) {
    super("already-exists", message, details)
  }
}

/** The server does not take the user and password, or wants some and got none. */
export class AuthenticationError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["authentication"]
  constructor(message: string, details?: ErrorDetails) {
    super("authentication", message, details)
  }
}

/** The process or the user may not do this (file permissions, access lists). */
export class PermissionError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["permission"]
  constructor(message: string, details?: ErrorDetails) {
    super("permission", message, details)
  }
}

/** The backend cannot be reached. `outcome` is `rejected` when nothing had been sent. */
export class ConnectionError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["connection"]
  constructor(message: string, details?: ErrorDetails) {
    super("connection", message, details)
  }
}

/** Time ran out. `outcome` is `unknown` once a request was sent. */
export class TimeoutError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["timeout"]
  constructor(message: string, details?: ErrorDetails) {
    super("timeout", message, details)
  }
}

/** The caller's `AbortSignal` fired. `outcome` says how far the call had got. */
export class CancelledError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["cancelled"]
  constructor(message: string, details?: ErrorDetails) {
    super("cancelled", message, details)
  }
}

/** One record is above a limit of the backend; its neighbours are not touched. `context` has `sizeBytes` and `limitBytes`. */
export class RecordTooLargeError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["record-too-large"]
  constructor(message: string, details?: ErrorDetails) {
    super("record-too-large", message, details)
  }
}

/** A buffer of bounded size has no room: slow down, or try again once some of what waits has gone out. */
export class BufferFullError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["buffer-full"]
  constructor(message: string, details?: ErrorDetails) {
    super("buffer-full", message, details)
  }
}

/** Bytes do not decode: a payload, a header block, a batch. `context` has the position. */
export class DecodeError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["decode"]
  constructor(message: string, details?: ErrorDetails) {
    super("decode", message, details)
  }
}

/** A newer incarnation of this producer or member has taken over. */
export class FencedError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["fenced"]
  constructor(message: string, details?: ErrorDetails) {
    super("fenced", message, details)
  }
}

/** The partition belongs to another member now; nothing was stored. */
export class NotAssignedError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["not-assigned"]
  constructor(message: string, details?: ErrorDetails) {
    super("not-assigned", message, details)
  }
}

/** The topic was purged or recreated since the position was taken. */
export class HistoryChangedError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["history-changed"]
  constructor(message: string, details?: ErrorDetails) {
    super("history-changed", message, details)
  }
}

/** The position lies before the first retained record or behind the end. `context` has `offset`, `first` and `end`. */
export class OffsetOutOfRangeError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["offset-out-of-range"]
  constructor(message: string, details?: ErrorDetails) {
    super("offset-out-of-range", message, details)
  }
}

/** The producer sequence does not continue the partition's. The sender decides what that means; users never see it bare. */
export class SequenceError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["sequence"]
  constructor(message: string, details?: ErrorDetails) {
    super("sequence", message, details)
  }
}

/** The transaction is over and nothing of it was done: abort it, and begin again. */
export class TransactionAbortedError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["transaction-aborted"]
  constructor(message: string, details?: ErrorDetails) {
    super("transaction-aborted", message, details)
  }
}

/** The call is not for the state that the transaction or its producer is in: the message names both. */
export class TransactionStateError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["transaction-state"]
  constructor(message: string, details?: ErrorDetails) {
    super("transaction-state", message, details)
  }
}

/** The store failed in a way that no retry mends (an I/O error, a format that is too new). */
export class StorageError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["storage"]
  constructor(message: string, details?: ErrorDetails) {
    super("storage", message, details)
  }
}

/** No room on the disk; the write did not happen, and a later one may. */
export class DiskFullError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["disk-full"]
  constructor(message: string, details?: ErrorDetails) {
    super("disk-full", message, details)
  }
}

/** Stored bytes fail their checksum or contradict each other. */
export class CorruptionError extends MillraceError {
  protected static override readonly accepts: readonly ErrorKind[] = ["corruption"]
  constructor(message: string, details?: ErrorDetails) {
    super("corruption", message, details)
  }
}

/** The form in which an error crosses a thread or a process: structured-cloneable, nothing lost but the stack. */
export interface ErrorWire {
  readonly kind: ErrorKind
  readonly name: string
  readonly message: string
  readonly retryable: boolean
  readonly outcome: Outcome
  readonly context: ErrorContext
  readonly cause?: string
}

/** Any thrown value, as it may cross a thread. What is not a `MillraceError` becomes `storage`. */
export function errorToWire(error: unknown): ErrorWire {
  const known = error instanceof MillraceError ? error : new StorageError(String(error), { cause: error })
  const wire = {
    kind: known.kind,
    name: known.name,
    message: known.message,
    retryable: known.retryable,
    outcome: known.outcome,
    context: known.context,
  }
  return known.cause === undefined ? wire : { ...wire, cause: String(known.cause) }
}

/** The error again. `instanceof` tells its class by its kind, so every class of this module recognises it. */
export function errorFromWire(wire: ErrorWire): MillraceError {
  const details: ErrorDetails = {
    retryable: wire.retryable,
    outcome: wire.outcome,
    context: wire.context,
    ...(wire.cause === undefined ? {} : { cause: wire.cause }),
  }
  const error = new MillraceError(wire.kind, wire.message, details)
  error.name = wire.name
  return error
}
