/** Requests under way on one connection: matched to replies by number, bounded in flight, each with its own end in time. */
import { ConnectionError, MillraceError, TimeoutError } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { PartitionContext } from "../codec/catalog-structures.ts"
import { errorCodes } from "../codec/server-error.ts"
import { operationClass } from "../wire/operation.ts"
import type { Reply } from "../wire/reply.ts"

const { transientNotAccepted, transientNotCommitted } = errorCodes

/** More than this many at once and a server may drop some without a word (iggy-wire.md: In flight). */
const mostInFlight = 32

/** Requests that wait for their turn behind those. */
const mostWaiting = 4096

/** A frame whose buffer belongs to somebody who must know when it is free again. */
export interface Pinned {
  pin(): void
  unpin(): void
}

export interface Outgoing {
  readonly id: number
  /** The command's, for errors. */
  readonly name: string
  readonly operation: number
  /** The command's number, for the header of a non-replicated request; else 0. */
  readonly code: number
  readonly context: PartitionContext | undefined
  /** The header is written when the frame is. */
  readonly frame: Buffer
  readonly owner: Pinned | undefined
  readonly timeoutMs: number
  resolve(reply: Reply): void
  reject(error: MillraceError): void
}

interface Entry extends Outgoing {
  written: boolean
  /** The server could not tell whether an earlier try was committed. */
  doubtful: boolean
  timer: Timer | undefined
  repeatTimer: Timer | undefined
}

export class RequestTable {
  readonly #clock: Clock
  readonly #write: (entry: Outgoing) => void
  readonly #inFlight = new Map<number, Entry>()
  readonly #waiting = new Set<Entry>()

  /** @param write Hands a frame to the link; called only in `add` and when a place is free. */
  constructor(clock: Clock, write: (request: Outgoing) => void) {
    this.#clock = clock
    this.#write = write
  }

  /** Requests that were written and not answered. */
  get inFlight(): number {
    return this.#inFlight.size
  }

  add(request: Outgoing): void {
    if (this.#inFlight.size >= mostInFlight && this.#waiting.size >= mostWaiting) {
      request.reject(
        new MillraceError(
          "throttled",
          `${request.name} was not sent: ${mostInFlight} requests are in flight and ${mostWaiting} wait`,
        ),
      )
      return
    }
    const entry: Entry = { ...request, written: false, doubtful: false, timer: undefined, repeatTimer: undefined }
    entry.timer = this.#clock.setTimer(request.timeoutMs, () => this.#expire(entry))
    if (this.#inFlight.size < mostInFlight) this.#send(entry)
    else this.#waiting.add(entry)
  }

  /** Answers whether somebody waited for it. That a repeated one was not accepted says nothing of the tries before. */
  settle(id: number, reply: Reply): boolean {
    const entry = this.#inFlight.get(id)
    if (entry === undefined) return false
    this.#remove(entry)
    entry.resolve(
      entry.doubtful && reply.code === transientNotAccepted ? { ...reply, code: transientNotCommitted } : reply,
    )
    this.#fill()
    return true
  }

  /** Writes a request again after a pause, within its own time, if that cannot do its work twice. Answers whether it will. */
  repeat(id: number, afterMs: number): boolean {
    const entry = this.#inFlight.get(id)
    if (entry === undefined || operationClass(entry.operation) === "partition") return false
    entry.doubtful = mayHaveHappened(entry)
    entry.repeatTimer = this.#clock.setTimer(afterMs, () => this.#write(entry))
    return true
  }

  /** Rejects one that was written, since its answer cannot be read: what changes something may have been done. */
  refuse(id: number, error: MillraceError): void {
    const entry = this.#inFlight.get(id)
    if (entry === undefined) return
    this.#remove(entry)
    entry.reject(mayHaveHappened(entry) ? unanswered(entry, new MillraceError("protocol", error.message)) : error)
    this.#fill()
  }

  /** Rejects all. What was written and changes something may have been done. */
  failAll(error: MillraceError): void {
    const entries = [...this.#inFlight.values(), ...this.#waiting]
    this.#inFlight.clear()
    this.#waiting.clear()
    for (const entry of entries) {
      cancelTimers(entry)
      entry.reject(unanswered(entry, error))
    }
  }

  #send(entry: Entry): void {
    entry.written = true
    this.#inFlight.set(entry.id, entry)
    this.#write(entry)
  }

  #fill(): void {
    for (const entry of this.#waiting) {
      if (this.#inFlight.size >= mostInFlight) return
      this.#waiting.delete(entry)
      this.#send(entry)
    }
  }

  #remove(entry: Entry): void {
    cancelTimers(entry)
    this.#inFlight.delete(entry.id)
    this.#waiting.delete(entry)
  }

  #expire(entry: Entry): void {
    this.#remove(entry)
    const { name, timeoutMs } = entry
    const message = entry.written
      ? `Apache Iggy did not answer ${name} within ${timeoutMs} ms`
      : `${name} was not sent within ${timeoutMs} ms: ${mostInFlight} others are in flight`
    entry.reject(new TimeoutError(message, { outcome: mayHaveHappened(entry) ? "unknown" : "rejected" }))
    this.#fill()
  }
}

function cancelTimers(entry: Entry): void {
  entry.timer?.cancel()
  entry.repeatTimer?.cancel()
}

function mayHaveHappened(entry: Entry): boolean {
  return entry.written && operationClass(entry.operation) !== "read"
}

/** Why nothing is known of a request's end, in its words and with its outcome. */
function unanswered(entry: Entry, error: MillraceError): MillraceError {
  const outcome = mayHaveHappened(entry) ? "unknown" : "rejected"
  const message = `${entry.name} has no answer: ${error.message}`
  // The number of a refusal in the reason is not an answer to this request.
  const details = {
    outcome,
    context: { ...error.context, code: undefined, command: entry.name },
    cause: error,
  } as const
  if (error.kind === "connection" || error.kind === "protocol")
    return new ConnectionError(message, { ...details, retryable: true })
  return new MillraceError(error.kind, message, { ...details, retryable: error.retryable })
}
