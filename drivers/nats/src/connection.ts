import {
  CancelledError,
  ClosedError,
  ConnectionError,
  type ConnectTarget,
  MillraceError,
  PermissionError,
  type SessionOptions,
  TimeoutError,
  UnsupportedError,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { ConnectionOptions, NatsConnection, Status } from "@nats-io/transport-node"
import { connect as dial, errors } from "@nats-io/transport-node"
import { jetstreamError } from "./api-error.ts"
import { connectFailure, isRefusedLogin } from "./connect-failure.ts"
import { guardParser } from "./parser-guard.ts"
import { ReconnectPace } from "./reconnect-pace.ts"
import { boundDials, endDial, failDial } from "./redial.ts"
import { type Expectation, Replies, type Reply, type RequestOptions } from "./replies.ts"
import { Wire } from "./wire.ts"

/** What a request of the JetStream API may take when nothing else is said, in ms. */
const defaultRequestTimeoutMs = 10_000

/** The oldest server whose streams keep metadata (2.10), which the mapping of topics needs. */
const oldestServer = [2, 10] as const

/** So many refusals of user and password, one behind the other, and whoever asks for something is told. */
const refusedLoginsBelieved = 2

/** How often the client asks whether the server is alive, in ms, and how many answers may be missing. */
const pingIntervalMs = 10_000
const pingsUnanswered = 2

export interface ConnectionParts {
  readonly clock: Clock
  readonly random: Random
}

/** Told when the connection is lost, when it is there again, and when the session ends. */
export interface ConnectionListener {
  readonly lost?: (error: MillraceError) => void
  readonly restored?: () => void
  /** The user may not publish to the subject: what was sent to it was dropped. */
  readonly denied?: (subject: string, error: MillraceError) => void
  readonly closed?: () => void
}

/**
 * One connection to a NATS server, shared by everything in a session. It reconnects by itself until it is closed. While it is away,
 * requests fail at once and nothing is kept back to be sent later; what was sent and not answered fails as `unknown`.
 */
export class Connection {
  /** The client underneath. */
  readonly nc: NatsConnection
  readonly clock: Clock
  readonly random: Random
  readonly requestTimeoutMs: number
  readonly wire: Wire
  /** 12 characters that no other connection has, for the names of batches. */
  readonly label: string
  readonly #replies: Replies
  readonly #pace: ReconnectPace
  readonly #onConnection: SessionOptions["onConnection"]
  readonly #listeners = new Set<ConnectionListener>()
  readonly #watching: Promise<void>
  #jetstreamSeen = false
  /** What the server said that is no protocol: the reason for the loss that follows. */
  #garbage: unknown
  #lost: { readonly error: MillraceError; readonly sinceMs: number; readonly server: string } | undefined
  /** Attempts to come back whose user and password were refused, one behind the other. */
  #refusedLogins = 0
  #refusal: MillraceError | undefined
  #closing: Promise<void> | undefined

  /**
   * Connects and makes sure that JetStream is there.
   * @throws ConnectionError, TimeoutError, AuthenticationError, CancelledError; UnsupportedError for a server without JetStream or older
   *   than 2.10; a `protocol` error from something that is no NATS server
   */
  static async open(target: ConnectTarget, options: SessionOptions, parts: ConnectionParts): Promise<Connection> {
    const pace = new ReconnectPace(Math.max(1, target.hosts.length), parts.random)
    const nc = await firstConnection(clientOptions(target, options.timeoutMs, pace), target, { ...options, ...parts })
    pace.restored()
    const connection = new Connection(nc, pace, { ...options, ...parts, target })
    try {
      await connection.#checkServer()
      return connection
    } catch (error) {
      await connection.close()
      throw error
    }
  }

  private constructor(
    nc: NatsConnection,
    pace: ReconnectPace,
    parts: ConnectionParts & SessionOptions & { readonly target: ConnectTarget },
  ) {
    this.nc = nc
    this.clock = parts.clock
    this.random = parts.random
    this.#pace = pace
    this.#onConnection = parts.onConnection
    const { requestTimeout } = parts.target.options
    this.requestTimeoutMs = typeof requestTimeout === "number" ? requestTimeout : defaultRequestTimeoutMs
    this.wire = new Wire(nc)
    this.label = [0, 1].map(() => parts.random.uint32().toString(36).padStart(7, "0").slice(-6)).join("")
    this.#replies = new Replies(this)
    this.#watching = this.#watch(nc.status())
    boundDials(nc)
    guardParser(nc, (error) => {
      this.#garbage = error
    })
  }

  /** `host:port` of the server that the connection is or was with. */
  get server(): string {
    return this.nc.getServer()
  }

  get closed(): boolean {
    return this.#closing !== undefined
  }

  get connected(): boolean {
    return this.#lost === undefined && this.#closing === undefined
  }

  /** Bytes that a message may have, headers and payload together, as the server said. */
  get maxPayloadBytes(): number {
    return this.nc.info?.max_payload ?? 1_048_576
  }

  /** The server's version: major, minor, patch. */
  get version(): readonly [number, number, number] {
    const match = /^v?(\d+)\.(\d+)\.(\d+)/.exec(this.nc.info?.version ?? "")
    return match === null ? [0, 0, 0] : [Number(match[1]), Number(match[2]), Number(match[3])]
  }

  /** Whether the server is of this version or a newer one. */
  isAtLeast(major: number, minor: number): boolean {
    const [ownMajor, ownMinor] = this.version
    return ownMajor > major || (ownMajor === major && ownMinor >= minor)
  }

  /** Whether JetStream has answered: where it is silent afterwards it is away for a while. */
  get jetstreamSeen(): boolean {
    return this.#jetstreamSeen
  }

  /** The prefix of inboxes that are this connection's own. */
  get inbox(): string {
    return this.#replies.inbox
  }

  /**
   * @throws ClosedError after `close`; a retryable ConnectionError, outcome `rejected`, while the server is away; AuthenticationError
   *   while it is there again and does not take the user and password any more
   */
  check(): void {
    if (this.#closing !== undefined) throw new ClosedError("the session is closed")
    if (this.#refusal !== undefined) throw this.#refusal
    if (this.#lost !== undefined) {
      throw new ConnectionError(`the NATS server ${this.#lost.server} is gone: ${this.#lost.error.message}`, {
        cause: this.#lost.error,
      })
    }
  }

  /** Tells the listener of every change, until the answered function is called. */
  listen(listener: ConnectionListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Sends one message and awaits the answer to it.
   * @throws TimeoutError and ConnectionError, outcome `unknown` unless the request only reads (`idempotent`); NotFoundError when
   *   nobody listens to the subject; ClosedError
   */
  request(subject: string, payload: Uint8Array, options: RequestOptions = {}): Promise<Reply> {
    return this.#replies.request(subject, payload, options)
  }

  /** Reserves a subject for answers to messages that are sent by `wire`; see `Replies.expect`. */
  expect(options: Expectation): { readonly subject: string; readonly reply: Promise<Reply> } {
    return this.#replies.expect(options)
  }

  /**
   * One request of the JetStream API: `$JS.API.<name>` with a JSON body.
   * @throws what `jetstreamError` makes of an answer that is an error; see `request`
   */
  async api<T>(name: string, body?: unknown, options: RequestOptions = {}): Promise<T> {
    const payload = body === undefined ? noBytes : utf8.encode(JSON.stringify(body))
    const reply = await this.request(`$JS.API.${name}`, payload, { noResponders: "jetstream", ...options })
    return parseApiReply<T>(reply.data, `$JS.API.${name}`)
  }

  /** Ends the connection; what is pending fails. The second call awaits the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    // What others hang on the connection settles first, while messages can still be sent.
    for (const listener of [...this.#listeners]) listener.closed?.()
    this.#listeners.clear()
    this.#replies.close()
    await this.nc.close()
    endDial(this.nc)
    await this.#watching
  }

  async #checkServer(): Promise<void> {
    const [major, minor, patch] = this.version
    if (!this.isAtLeast(...oldestServer)) {
      throw new UnsupportedError(
        `the NATS server ${this.server} is version ${major}.${minor}.${patch}: Millrace needs ${oldestServer.join(".")} or newer`,
      )
    }
    await this.api("INFO", undefined, { idempotent: true })
    this.#jetstreamSeen = true
  }

  async #watch(statuses: AsyncIterable<Status>): Promise<void> {
    for await (const status of statuses) {
      if (this.#closing !== undefined) continue
      if (status.type === "disconnect") this.#onLost(status.server)
      else if (status.type === "reconnecting") this.#pace.attempted()
      else if (status.type === "reconnect") this.#onRestored(status.server)
      else if (status.type === "error") this.#onError(status.error)
    }
  }

  #onError(error: Error): void {
    if (error instanceof errors.PermissionViolationError) this.#onDenied(error)
    else if (this.#lost !== undefined && isRefusedLogin(error) && ++this.#refusedLogins >= refusedLoginsBelieved)
      this.#refusal = connectFailure(error, this.#lost.server)
  }

  #onLost(server: string): void {
    if (this.#lost !== undefined) {
      failDial(this.nc, this.#lost.error)
      return
    }
    const cause = this.#garbage
    this.#garbage = undefined
    const error = new ConnectionError(
      cause === undefined
        ? `the connection to the NATS server ${server} was lost`
        : `the connection to ${server} was given up, because it sent what is not the NATS protocol: ${String(cause)}`,
      cause === undefined ? {} : { cause },
    )
    this.#lost = { error, sinceMs: this.clock.monotonicMs(), server }
    this.#replies.lost(error)
    for (const listener of [...this.#listeners]) listener.lost?.(error)
    this.#onConnection?.({ state: "lost", server, error })
  }

  #onDenied({ operation, subject, message }: InstanceType<typeof errors.PermissionViolationError>): void {
    if (operation !== "publish") return
    const error = new PermissionError(`the user may not publish to ${subject}: the NATS server says "${message}"`)
    this.#replies.denied(subject, error)
    for (const listener of [...this.#listeners]) listener.denied?.(subject, error)
  }

  #onRestored(server: string): void {
    const lost = this.#lost
    if (lost === undefined) return
    this.#lost = undefined
    this.#refusedLogins = 0
    this.#refusal = undefined
    this.#pace.restored()
    for (const listener of [...this.#listeners]) listener.restored?.()
    this.#onConnection?.({ state: "restored", server, afterMs: this.clock.monotonicMs() - lost.sinceMs })
  }
}

const utf8 = new TextEncoder()
const noBytes = new Uint8Array(0)

/** @throws MillraceError for an answer that is an error, or that is no JSON */
export function parseApiReply<T>(data: Uint8Array, what: string): T {
  let answer: { readonly error?: { code?: number; err_code?: number; description?: string } }
  try {
    answer = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("utf8"))
  } catch (cause) {
    throw new MillraceError("protocol", `the NATS server's answer to ${what} is no JSON`, { cause })
  }
  if (typeof answer !== "object" || answer === null) {
    throw new MillraceError("protocol", `the NATS server's answer to ${what} is no JSON object`)
  }
  if (answer.error !== undefined) throw jetstreamError(answer.error, what)
  return answer as T
}

function clientOptions(target: ConnectTarget, timeoutMs: number, pace: ReconnectPace): ConnectionOptions {
  const { username, password } = target
  return {
    servers: addressesOf(target),
    ...(username === undefined ? {} : { user: username }),
    ...(password === undefined ? {} : { pass: password }),
    name: "millrace",
    reconnect: true,
    maxReconnectAttempts: -1,
    // A server that refuses the password may be half started, or be told the right one later: the pace bounds the attempts, and
    // whoever asks meanwhile is told.
    ignoreAuthErrorAbort: true,
    reconnectDelayHandler: () => pace.delayMs(),
    // One address a server: every address that a name resolves to would count as an attempt.
    resolve: false,
    timeout: Math.max(1, timeoutMs),
    pingInterval: pingIntervalMs,
    maxPingOut: pingsUnanswered,
    noAsyncTraces: true,
  }
}

/** `host:port` of each server, an IPv6 address in brackets. */
function addressesOf({ hosts }: ConnectTarget): string[] {
  return hosts.map(({ host, port }) => `${host.includes(":") ? `[${host}]` : host}:${port ?? 4222}`)
}

/** The client's own connect can neither be aborted nor bounded over several servers: what comes too late is closed. */
async function firstConnection(
  settings: ConnectionOptions,
  target: ConnectTarget,
  { timeoutMs, signal, clock }: SessionOptions & ConnectionParts,
): Promise<NatsConnection> {
  const where = addressesOf(target).join(", ")
  if (signal?.aborted) throw new CancelledError("connecting was aborted before it began", { cause: signal.reason })
  const attempt = dial(settings)
  const { promise: given, reject: giveUp } = Promise.withResolvers<never>()
  const timer = clock.setTimer(timeoutMs, () =>
    giveUp(new TimeoutError(`no NATS server answered at ${where} within ${timeoutMs} ms`, { outcome: "rejected" })),
  )
  const abort = (): void => giveUp(new CancelledError("connecting was aborted", { cause: signal?.reason }))
  signal?.addEventListener("abort", abort, { once: true })
  try {
    return await Promise.race([attempt, given])
  } catch (error) {
    attempt.then(
      (late) => late.close(),
      () => {
        // The failure that counts was thrown already.
      },
    )
    throw error instanceof MillraceError ? error : connectFailure(error, where)
  } finally {
    timer.cancel()
    signal?.removeEventListener("abort", abort)
  }
}
