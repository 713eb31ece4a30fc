import {
  ClosedError,
  ConnectionError,
  MillraceError,
  NotFoundError,
  PermissionError,
  TimeoutError,
  UnsupportedError,
} from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { createInbox, type Msg, type NatsConnection } from "@nats-io/transport-node"
import { rawHeaders } from "./raw-message.ts"
import type { Wire } from "./wire.ts"

/** How often what is overdue is looked for, in ms: a time-out is late by as much at most. */
const sweepMs = 100

export interface RequestOptions {
  /** Default: the connection's. */
  readonly timeoutMs?: number
  /** The request only reads: a lost answer leaves no doubt. Default: false. */
  readonly idempotent?: boolean
  /** A header block that is sent as it is. */
  readonly headers?: Uint8Array
  /** Whether an answer "nobody listens" means that the account has no JetStream. Default: what the subject names is not there. */
  readonly noResponders?: "jetstream" | "not-found"
  /** For error messages. Default: the subject. */
  readonly what?: string
}

/** What is asked, for an answer to messages that the caller sends. */
export interface Expectation extends RequestOptions {
  readonly what: string
  /** Where the messages go: a refusal of the server names nothing else. */
  readonly subject: string
}

/** An answer: its payload, and its header block as it came. */
export interface Reply {
  readonly data: Uint8Array
  readonly headers: Uint8Array | undefined
}

interface Pending {
  readonly resolve: (reply: Reply) => void
  readonly reject: (error: MillraceError) => void
  readonly options: Expectation
  readonly what: string
  readonly dueMs: number
  readonly timeoutMs: number
}

/** What `Replies` needs of its connection. */
export interface ReplySource {
  readonly nc: NatsConnection
  readonly wire: Wire
  readonly clock: Clock
  readonly requestTimeoutMs: number
  readonly server: string
  readonly jetstreamSeen: boolean
  check(): void
}

/**
 * Requests and the answers to them, over one subscription. (The client's own requests hang until their time-out when the connection
 * is cut, and make three promises each.)
 */
export class Replies {
  /** The subject in front of every answer's token; ends without a dot. */
  readonly inbox: string
  readonly #source: ReplySource
  readonly #pending = new Map<string, Pending>()
  #last = 0
  #sweep: Timer | undefined
  #closed = false

  constructor(source: ReplySource) {
    this.#source = source
    this.inbox = createInbox()
    source.nc.subscribe(`${this.inbox}.*`, { callback: (error, message) => this.#receive(error, message) })
  }

  request(subject: string, payload: Uint8Array, options: RequestOptions): Promise<Reply> {
    let expected: { readonly subject: string; readonly reply: Promise<Reply> }
    try {
      expected = this.expect({ what: subject, ...options, subject })
    } catch (error) {
      return Promise.reject(error)
    }
    this.#source.wire.publish(subject, expected.subject, { payload, headers: options.headers })
    return expected.reply
  }

  /**
   * A subject for one answer, and the answer. The caller sends at once, in the same turn.
   * @throws ClosedError, ConnectionError when nothing can be sent now
   */
  expect(options: Expectation): { readonly subject: string; readonly reply: Promise<Reply> } {
    this.#source.check()
    if (this.#closed) throw new ClosedError("the session is closed")
    const token = (++this.#last).toString(36)
    const timeoutMs = options.timeoutMs ?? this.#source.requestTimeoutMs
    const { promise, resolve, reject } = Promise.withResolvers<Reply>()
    const dueMs = this.#source.clock.monotonicMs() + timeoutMs
    this.#pending.set(token, { resolve, reject, options, what: options.what, dueMs, timeoutMs })
    this.#arm()
    return { subject: `${this.inbox}.${token}`, reply: promise }
  }

  /** The connection was lost: what is pending may have been done. */
  lost(error: MillraceError): void {
    for (const [token, pending] of this.#pending) {
      this.#pending.delete(token)
      const { idempotent } = pending.options
      pending.reject(
        new ConnectionError(
          `the connection to the NATS server ${this.#source.server} was lost before ${pending.what} was answered`,
          {
            outcome: idempotent ? "rejected" : "unknown",
            cause: error,
          },
        ),
      )
    }
    this.#arm()
  }

  /** The server dropped what was sent to a subject. */
  denied(subject: string, error: MillraceError): void {
    for (const [token, pending] of this.#pending) {
      if (pending.options.subject !== subject) continue
      this.#pending.delete(token)
      pending.reject(error)
    }
    this.#arm()
  }

  close(): void {
    this.#closed = true
    for (const [token, pending] of this.#pending) {
      this.#pending.delete(token)
      const outcome = pending.options.idempotent ? "rejected" : "unknown"
      pending.reject(new ClosedError(`the session was closed before ${pending.what} was answered`, { outcome }))
    }
    this.#arm()
  }

  #receive(error: Error | null, message: Msg): void {
    if (error !== null) {
      this.#deaf(error)
      return
    }
    const token = message.subject.slice(this.inbox.length + 1)
    const pending = this.#pending.get(token)
    if (pending === undefined) return
    this.#pending.delete(token)
    const headers = rawHeaders(message)
    if (message.data.length === 0 && headers !== undefined && isNoResponders(headers))
      pending.reject(this.#noResponders(pending))
    else pending.resolve({ data: message.data, headers })
    if (this.#pending.size === 0) this.#arm()
  }

  /** The user may not listen to answers: requests are done, and nobody learns of it. */
  #deaf(cause: Error): void {
    for (const [token, { options, what, reject }] of this.#pending) {
      this.#pending.delete(token)
      const outcome = options.idempotent ? "rejected" : "unknown"
      reject(
        new PermissionError(`${what}: the user may not subscribe to ${this.inbox}.*: ${cause.message}`, {
          cause,
          outcome,
        }),
      )
    }
    this.#arm()
  }

  #noResponders({ what, options }: Pending): MillraceError {
    if (options.noResponders !== "jetstream") return new NotFoundError(`nobody listens to ${what}`)
    if (this.#source.jetstreamSeen) {
      return new MillraceError(
        "not-leader",
        `JetStream of the NATS server ${this.#source.server} does not answer at present: ${what}`,
      )
    }
    return new UnsupportedError(
      `the NATS server ${this.#source.server} has no JetStream for this account: start it with -js, or enable JetStream for the account`,
    )
  }

  /** Keeps the one timer while something is pending, and no longer. */
  #arm(): void {
    if (this.#pending.size === 0) {
      this.#sweep?.cancel()
      this.#sweep = undefined
      return
    }
    this.#sweep ??= this.#source.clock.setTimer(sweepMs, () => {
      this.#sweep = undefined
      this.#expire()
      this.#arm()
    })
  }

  #expire(): void {
    const nowMs = this.#source.clock.monotonicMs()
    for (const [token, pending] of this.#pending) {
      if (pending.dueMs > nowMs) continue
      this.#pending.delete(token)
      const outcome = pending.options.idempotent ? "rejected" : "unknown"
      pending.reject(
        new TimeoutError(
          `${pending.what}: the NATS server ${this.#source.server} did not answer within ${pending.timeoutMs} ms`,
          {
            outcome,
          },
        ),
      )
    }
  }
}

/** `NATS/1.0 503`: the server's answer when a subject has no subscriber. */
function isNoResponders(headers: Uint8Array): boolean {
  return headers[9] === 0x35 && headers[10] === 0x30 && headers[11] === 0x33
}
