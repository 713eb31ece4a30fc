/**
 * One TCP connection to one broker: frames out and in, answers in the order of the requests, time-outs by one timer, and what the
 * broker offers, asked first (ApiVersions). It neither reconnects nor retries.
 */
import type { Socket } from "node:net"
import { ClosedError, ConnectionError, MillraceError, TimeoutError } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { Body, NodeConnection, RequestOptions } from "../cluster/cluster.ts"
import { errorCode, kafkaError, withOutcome } from "../errors.ts"
import { type Api, apiVersionsApi, correlationIdOf, fetchApi, metadataApi, produceApi } from "../protocol/api.ts"
import type { ApiVersionsResponse } from "../protocol/messages.generated.ts"
import { foreignProtocol } from "./foreign-protocol.ts"
import { FrameReader } from "./frame-reader.ts"
import { NodeVersions } from "./node-versions.ts"
import { PendingRequest, PendingRequests } from "./pending-requests.ts"
import { givenUp, openTcp } from "./tcp.ts"

/** Requests that may wait for answers on one connection. The core's budgets lie far below; behind it a request is refused. */
const mostPending = 10_000

/** How long TCP waits before it asks an idle peer whether it is there, ms. */
const keepAliveMs = 30_000

const noBroker = "is no Kafka broker"

/** Names of this client for the broker's metrics (KIP-511). */
const software = { clientSoftwareName: "millrace", clientSoftwareVersion: "0.1.0" }

export interface ConnectionOptions {
  readonly host: string
  readonly port: number
  /** −1 while it is not known: an address of the URL. */
  readonly nodeId: number
  readonly clientId: string
  readonly clock: Clock
  /** For TCP and ApiVersions together. */
  readonly connectTimeoutMs: number
  /** For requests that say nothing of their own. */
  readonly requestTimeoutMs: number
  /** Gives the attempt up. An open connection is not touched by it. */
  readonly signal?: AbortSignal
  /** Told once when an open connection ends, with the reason; `undefined` when its owner closed it. */
  readonly onEnd?: (error: MillraceError | undefined) => void
}

export class WireConnection implements NodeConnection {
  readonly nodeId: number
  readonly #options: ConnectionOptions
  readonly #socket: Socket
  readonly #server: string
  readonly #frames = new FrameReader()
  readonly #pending = new PendingRequests()
  #out: { readonly request: PendingRequest; readonly chunks: readonly Uint8Array[] }[] = []
  #versions: NodeVersions | undefined
  #correlation = 0
  #heard = false
  #lastHeardMs: number
  #timer: Timer | undefined
  #timerAtMs = 0
  #open = false
  #closed = false

  private constructor(options: ConnectionOptions, socket: Socket) {
    this.nodeId = options.nodeId
    this.#options = options
    this.#socket = socket
    this.#server = serverName(options)
    this.#lastHeardMs = options.clock.monotonicMs()
    socket.setNoDelay(true)
    socket.setKeepAlive(true, keepAliveMs)
    socket.on("data", (chunk) => this.#receive(chunk))
    socket.on("error", (cause) => this.#end(this.#cut(cause)))
    socket.on("close", () => this.#end(this.#cut(undefined)))
  }

  /**
   * Connects and asks what the broker offers.
   * @throws ConnectionError when nobody listens or nobody answers in time; a `protocol` error that says what it is that answers;
   *   UnsupportedError when the broker is too old. Nothing was done: `rejected`
   */
  static async open(options: ConnectionOptions): Promise<WireConnection> {
    const startMs = options.clock.monotonicMs()
    const server = serverName(options)
    const { host, port, clock, connectTimeoutMs, signal } = options
    const socket = await openTcp({ host, port, server, clock, timeoutMs: connectTimeoutMs, signal })
    const connection = new WireConnection(options, socket)
    const abort = (): void => connection.#end(givenUp(server))
    options.signal?.addEventListener("abort", abort, { once: true })
    try {
      const leftMs = options.connectTimeoutMs - (options.clock.monotonicMs() - startMs)
      connection.#versions = await connection.#negotiate(Math.max(1, leftMs))
    } catch (error) {
      connection.#end(undefined)
      throw connection.#refusal(error)
    } finally {
      options.signal?.removeEventListener("abort", abort)
    }
    connection.#open = true
    socket.unref()
    return connection
  }

  get closed(): boolean {
    return this.#closed
  }

  /** When the broker was last heard, on the clock's monotonic time. */
  get lastHeardMs(): number {
    return this.#lastHeardMs
  }

  /** Requests whose answers are still to come. */
  get pending(): number {
    return this.#pending.size
  }

  get versions(): NodeVersions {
    return this.#versions as NodeVersions
  }

  version<Q, S>(api: Api<Q, S>, options?: Pick<RequestOptions, "maxVersion" | "minVersion">): number {
    return this.versions.version(api, options)
  }

  request<Q, S>(api: Api<Q, S>, body: Body<Q>, options: RequestOptions = {}): Promise<S> {
    if (this.#closed) return Promise.reject(this.#gone())
    let version: number
    let content: Q
    try {
      version = this.versions.version(api, options)
      content = typeof body === "function" ? (body as (version: number) => Q)(version) : body
    } catch (error) {
      return Promise.reject(error)
    }
    return this.#send(api, content, { version, timeoutMs: options.timeoutMs, readOnly: options.readOnly ?? false })
  }

  close(): void {
    this.#end(undefined)
  }

  #send<Q, S>(
    api: Api<Q, S>,
    body: Q,
    how: { readonly version: number; readonly timeoutMs: number | undefined; readonly readOnly: boolean },
  ): Promise<S> {
    return new Promise<S>((resolve, reject) => {
      if (this.#pending.size >= mostPending) {
        const message = `${mostPending} requests wait for answers of ${this.#server} already`
        throw new MillraceError("throttled", message)
      }
      const correlationId = this.#correlation
      const chunks = api.encode(body, how.version, { correlationId, clientId: this.#options.clientId })
      this.#correlation = (correlationId + 1) & 0x7fff_ffff
      const timeoutMs = how.timeoutMs ?? this.#options.requestTimeoutMs
      const deadlineMs = this.#options.clock.monotonicMs() + timeoutMs
      const request = new PendingRequest(
        {
          api: api as unknown as Api<never, unknown>,
          version: how.version,
          correlationId,
          timeoutMs,
          deadlineMs,
          readOnly: how.readOnly,
        },
        { resolve: resolve as (answer: unknown) => void, reject },
      )
      if (this.#pending.size === 0 && this.#open) this.#socket.ref()
      this.#pending.add(request)
      if (this.#out.length === 0) queueMicrotask(() => this.#flush())
      this.#out.push({ request, chunks })
      this.#arm(deadlineMs)
    })
  }

  /** All requests of one turn go to the system in one call. */
  #flush(): void {
    const out = this.#out
    if (out.length === 0 || this.#closed) return
    this.#out = []
    this.#socket.cork()
    for (const { request, chunks } of out) {
      request.written = true
      for (const chunk of chunks) this.#socket.write(chunk)
    }
    this.#socket.uncork()
  }

  #receive(chunk: Uint8Array): void {
    if (this.#closed) return
    this.#lastHeardMs = this.#options.clock.monotonicMs()
    try {
      if (!this.#heard) this.#refuseForeign(chunk)
      this.#heard = true
      this.#frames.push(chunk, (frame) => this.#answer(frame))
    } catch (error) {
      this.#end(error instanceof MillraceError ? error : this.#unreadable(error))
    }
  }

  #answer(frame: Uint8Array): void {
    if (this.#closed) return
    const correlationId = correlationIdOf(frame)
    const request = this.#pending.oldest
    if (request === undefined || request.correlationId !== correlationId) {
      const expected =
        request === undefined ? "none is expected" : `${request.correlationId} (${request.api.name}) is expected`
      throw new MillraceError("protocol", `${this.#server} answered request ${correlationId}: ${expected}`)
    }
    this.#pending.shift()
    if (this.#pending.size === 0 && this.#open) this.#socket.unref()
    if (request.abandoned) return
    let answer: unknown
    try {
      answer =
        request.api === apiVersionsApi
          ? decodeVersions(frame, request.version)
          : request.api.decode(frame, request.version)
    } catch (error) {
      const failure = this.#unreadable(error)
      request.reject(request.readOnly ? withOutcome(failure, "rejected") : failure)
      throw failure
    }
    request.resolve(answer)
  }

  async #negotiate(timeoutMs: number): Promise<NodeVersions> {
    let version = Math.min(apiVersionsApi.max, 4)
    const ask = (): Promise<ApiVersionsResponse> =>
      this.#send(apiVersionsApi, software, { version, timeoutMs, readOnly: true })
    let answer = await ask()
    if (answer.errorCode === errorCode.unsupportedVersion) {
      const offered = answer.apiKeys.find((api) => api.apiKey === apiVersionsApi.key)
      version = Math.min(version - 1, offered?.maxVersion ?? 0)
      answer = await ask()
    }
    if (answer.errorCode !== errorCode.none) {
      throw kafkaError(answer.errorCode, { what: `asking ${this.#server} for its versions`, readOnly: true })
    }
    const versions = new NodeVersions(this.#server, answer)
    for (const api of [metadataApi, produceApi, fetchApi]) versions.version(api)
    return versions
  }

  #refuseForeign(chunk: Uint8Array): void {
    const guess = foreignProtocol(chunk)
    if (guess !== undefined) throw new MillraceError("protocol", `${this.#server} ${noBroker}: ${guess}`)
  }

  /** Why the connection could not be opened: nothing was done, whatever went wrong. */
  #refusal(error: unknown): MillraceError {
    if (error instanceof TimeoutError) {
      return new ConnectionError(
        `${this.#server} took the connection but did not answer within ${this.#options.connectTimeoutMs} ms: is it a Kafka listener without TLS and SASL?`,
        { cause: error, context: this.#context() },
      )
    }
    if (error instanceof ConnectionError && !this.#heard) {
      return new ConnectionError(
        `${this.#server} closed the connection at the first request: its listener may want TLS or SASL (this driver uses PLAINTEXT), or it is no Kafka broker`,
        { cause: error, context: this.#context() },
      )
    }
    const known = error instanceof MillraceError ? error : this.#unreadable(error)
    // Whoever has guessed what it is has said so.
    if (known.kind !== "protocol" || known.message.includes(noBroker)) return withOutcome(known, "rejected")
    const { cause, context, message } = known
    const asks = `${message}; is it a Kafka listener without TLS and SASL?`
    return new MillraceError("protocol", asks, { cause, context, outcome: "rejected" })
  }

  /** Keeps one timer, for the earliest deadline. It does not keep the process alive: the socket does, while answers are awaited. */
  #arm(deadlineMs: number): void {
    if (this.#timer !== undefined) {
      if (this.#timerAtMs <= deadlineMs) return
      this.#timer.cancel()
    }
    const { clock } = this.#options
    this.#timerAtMs = deadlineMs
    this.#timer = clock.setTimer(Math.max(0, deadlineMs - clock.monotonicMs()), () => this.#expire(), {
      background: true,
    })
  }

  #expire(): void {
    this.#timer = undefined
    if (this.#closed) return
    const nowMs = this.#options.clock.monotonicMs()
    for (const request of this.#pending.expire(nowMs)) request.reject(this.#late(request))
    const oldest = this.#pending.oldest
    // The answer that comes next is overdue, and not a byte has come: behind it nothing would come either.
    if (oldest?.abandoned === true && nowMs - this.#lastHeardMs >= oldest.timeoutMs) {
      const silentMs = Math.round(nowMs - this.#lastHeardMs)
      this.#end(new ConnectionError(`${this.#server} has been silent for ${silentMs} ms`, { context: this.#context() }))
      return
    }
    const next = this.#pending.nextDeadlineMs()
    if (next !== undefined) this.#arm(next)
    else if (oldest !== undefined) this.#arm(Math.max(nowMs + 1, this.#lastHeardMs + oldest.timeoutMs))
  }

  #late(request: PendingRequest): MillraceError {
    const message = `${this.#server} did not answer ${request.api.name} within ${request.timeoutMs} ms`
    const unknown = request.written && !request.readOnly
    return new TimeoutError(message, { outcome: unknown ? "unknown" : "rejected", context: this.#context() })
  }

  /** The one way out: the socket goes, everything pending settles, and the owner is told once. */
  #end(error: MillraceError | undefined): void {
    if (this.#closed) return
    this.#closed = true
    this.#timer?.cancel()
    this.#socket.destroy()
    this.#out = []
    const cause = error ?? new ClosedError(`the connection to ${this.#server} was closed`)
    for (const request of this.#pending.drain()) if (!request.abandoned) request.reject(this.#lost(request, cause))
    if (this.#open) this.#options.onEnd?.(error)
  }

  #lost(request: PendingRequest, cause: MillraceError): MillraceError {
    const unknown = request.written && !request.readOnly
    const outcome = unknown ? "unknown" : "rejected"
    if (!this.#open) return withOutcome(cause, outcome)
    if (cause.kind === "closed") return new ClosedError(cause.message, { outcome })
    const message = `${request.api.name} was under way when the connection to ${this.#server} ended: ${cause.message}`
    return new ConnectionError(message, { retryable: true, outcome, cause, context: this.#context() })
  }

  #cut(cause: Error | undefined): ConnectionError {
    const how = cause === undefined ? "closed by the broker" : `cut (${cause.message})`
    return new ConnectionError(`the connection to ${this.#server} was ${how}`, { cause, context: this.#context() })
  }

  #gone(): ConnectionError {
    return new ConnectionError(`the connection to ${this.#server} has ended`, { context: this.#context() })
  }

  #unreadable(cause: unknown): MillraceError {
    const words = cause instanceof Error ? cause.message : String(cause)
    return new MillraceError("protocol", `${this.#server} sent what cannot be read: ${words}`, {
      cause,
      context: this.#context(),
    })
  }

  #context(): { readonly server: string } {
    return { server: `${this.#options.host}:${this.#options.port}` }
  }
}

function serverName({ nodeId, host, port }: ConnectionOptions): string {
  return nodeId < 0 ? `Kafka at ${host}:${port}` : `Kafka broker ${nodeId} at ${host}:${port}`
}

/** A broker that does not know the version asked with answers in version 0, its error first (KIP-511). */
function decodeVersions(frame: Uint8Array, version: number): ApiVersionsResponse {
  const unsupported = frame.length >= 6 && frame[4] === 0 && frame[5] === errorCode.unsupportedVersion
  return apiVersionsApi.decode(frame, unsupported ? 0 : version)
}
