/** Requests to a registry that speaks Confluent's REST interface: each bounded in time and size, tried again in bounds. */
import { AuthenticationError, ConnectionError, MillraceError, PermissionError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { type AttemptSettings, attempt } from "../client/attempts.ts"
import { shown } from "../client/options.ts"

/** The most bytes of an answer. */
const mostAnswerBytes = 32 * 1024 * 1024
/** The most characters of a foreign text that an error repeats. */
const mostQuoted = 200
const mediaType = "application/vnd.schemaregistry.v1+json"

/** A request. A method that changes something can be repeated all the same: registries answer the second time as the first. */
export interface RegistryRequest {
  readonly method: "GET" | "POST" | "PUT"
  /** Below the registry's URL, with its query; already encoded. */
  readonly path: string
  readonly body?: object
  /** How errors call it: `getting schema 7`. */
  readonly what: string
}

/** An answer that is an error of the registry's own. */
export interface RegistryFailure {
  /** `error_code`, such as 40401; the HTTP status where the answer has none. */
  readonly code: number
  readonly message: string
}

/** The registry refused a request for a reason that it names. */
export class RefusedRequest extends Error {
  readonly failure: RegistryFailure
  constructor(failure: RegistryFailure) {
    super(failure.message)
    this.failure = failure
  }
}

/** Where requests go, with what, and how long they may take. */
export interface RegistryHttpOptions {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly attempts: AttemptSettings
  readonly clock: Clock
  readonly fetch: typeof globalThis.fetch
  readonly signal: AbortSignal | undefined
}

/** One registry's address. Holds nothing open between requests but what the platform keeps of connections. */
export class RegistryHttp {
  readonly #options: RegistryHttpOptions

  constructor(options: RegistryHttpOptions) {
    this.#options = options
  }

  /** The registry's address, without a user's name or password. */
  get address(): string {
    return `${this.#options.url.origin}${this.#options.url.pathname}`.replace(/\/$/, "")
  }

  /**
   * The JSON of the answer.
   * @throws RefusedRequest for what the registry refuses; AuthenticationError, PermissionError, ConnectionError, TimeoutError,
   *   CancelledError, and a `protocol` error for an answer that is none of a registry
   */
  async request(request: RegistryRequest): Promise<unknown> {
    const { clock, attempts, signal } = this.#options
    let under: AbortController | undefined
    try {
      return await attempt(clock, attempts, {
        what: request.what,
        request: () => {
          under?.abort()
          under = new AbortController()
          return this.#once(request, under.signal)
        },
        ...(signal === undefined ? {} : { signal }),
      })
    } finally {
      // Nothing of an answer that came too late stays open.
      under?.abort()
    }
  }

  async #once(request: RegistryRequest, signal: AbortSignal): Promise<unknown> {
    const { method, body, what } = request
    const headers: Record<string, string> = { accept: `${mediaType}, application/json`, ...this.#options.headers }
    if (body !== undefined) headers["content-type"] = mediaType
    let status: number
    let text: string
    try {
      const response = await this.#options.fetch(`${this.address}${request.path}`, {
        method,
        headers,
        signal,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      status = response.status
      text = await this.#text(response, what)
    } catch (cause) {
      if (cause instanceof MillraceError) throw cause
      throw this.#unreachable(what, cause)
    }
    return this.#answer(request, status, text)
  }

  #answer({ what }: RegistryRequest, status: number, text: string): unknown {
    let json: unknown
    try {
      json = JSON.parse(text)
    } catch (cause) {
      throw this.#failed(status, what, undefined) ?? this.#foreign(what, { status, text, cause })
    }
    if (status >= 200 && status < 300) return json
    const { error_code: code, message } = Object(json) as { readonly error_code?: unknown; readonly message?: unknown }
    const told = typeof message === "string" ? message : undefined
    const failed = this.#failed(status, what, told)
    if (failed !== undefined) throw failed
    if (typeof code !== "number") throw this.#foreign(what, { status, text, cause: undefined })
    throw new RefusedRequest({ code, message: told ?? `error ${code}` })
  }

  /** Failures that mean the same whatever was asked. */
  #failed(status: number, what: string, told: string | undefined): MillraceError | undefined {
    const says = `${what}: the schema registry at ${this.address} answers ${status}${told === undefined ? "" : ` (${quoted(told)})`}`
    if (status === 401) return new AuthenticationError(`${says}: it does not accept the credentials`)
    if (status === 403) return new PermissionError(`${says}: the user may not do this`)
    if (status === 408 || status === 429 || status >= 500) {
      const kind = status === 429 ? "throttled" : status === 408 || status === 504 ? "timeout" : "connection"
      return new MillraceError(kind, says, status === 429 ? {} : { outcome: "unknown" })
    }
    return undefined
  }

  #foreign(
    what: string,
    { status, text, cause }: { readonly status: number; readonly text: string; readonly cause: unknown },
  ): MillraceError {
    return new MillraceError(
      "protocol",
      `${what}: ${this.address} answers ${status} with ${shown(quoted(text))}, which is no answer of a schema registry: check its URL`,
      cause === undefined ? {} : { cause },
    )
  }

  #unreachable(what: string, cause: unknown): ConnectionError {
    const inner = cause instanceof Error && cause.cause !== undefined ? cause.cause : cause
    const code = (Object(inner) as { readonly code?: unknown }).code
    const why = inner instanceof Error && inner.message !== "" ? inner.message : String(code ?? inner)
    return new ConnectionError(`${what}: the schema registry at ${this.address} cannot be reached: ${why}`, {
      cause,
      outcome: unsent.has(code) ? "rejected" : "unknown",
    })
  }

  async #text(response: Response, what: string): Promise<string> {
    const reader = response.body?.getReader()
    if (reader === undefined) return ""
    const decoder = new TextDecoder()
    let text = ""
    let bytes = 0
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return text + decoder.decode()
      bytes += value.length
      if (bytes > mostAnswerBytes) {
        await reader.cancel()
        throw new MillraceError("protocol", `${what}: ${this.address} answers with more than ${mostAnswerBytes} bytes`)
      }
      text += decoder.decode(value, { stream: true })
    }
  }
}

/** Codes of failures that come before anything is sent. */
const unsent: ReadonlySet<unknown> = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"])

function quoted(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim()
  return line.length > mostQuoted ? `${line.slice(0, mostQuoted)}...` : line
}
