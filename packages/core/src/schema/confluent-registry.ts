import { Buffer } from "node:buffer"
import { InvalidError } from "@millrace/contract"
import { systemClock } from "@millrace/runtime"
import { OptionReader, shown } from "../client/options.ts"
import { ConfluentRegistry } from "./confluent-schemas.ts"
import { RegistryHttp } from "./registry-http.ts"
import type { SchemaRegistry } from "./schema.ts"

/** Who asks a registry. */
export type ConfluentAuth = { readonly username: string; readonly password: string } | { readonly token: string }

/** How a registry is spoken to. Unknown keys are refused. */
export interface ConfluentOptions {
  /** Basic authentication, or a bearer token. Default: what the URL carries, else none. */
  readonly auth?: ConfluentAuth
  /** Sent with each request. Default: none. */
  readonly headers?: Readonly<Record<string, string>>
  /** How long one request may take, in ms. Default 10,000. */
  readonly timeoutMs?: number
  /** How often a request is tried again after a failure that may pass. Default 3; 0: never. */
  readonly retries?: number
  /** The wait before the first retry, in ms; doubled for each further one, at most 30 s. Default 250. */
  readonly retryBackoffMs?: number
  /** How many schemas are kept by their ids, and how many by subject and version; neither ever changes. From 1, default 1000. */
  readonly cacheSize?: number
  /** Ends every request at once, and refuses later ones. */
  readonly signal?: AbortSignal
  /** What makes the requests. Default: the platform's `fetch`. */
  readonly fetch?: typeof globalThis.fetch
}

const known: readonly (keyof ConfluentOptions)[] = [
  "auth",
  "headers",
  "timeoutMs",
  "retries",
  "retryBackoffMs",
  "cacheSize",
  "signal",
  "fetch",
]

/**
 * A schema registry that speaks Confluent's REST interface. Records carry their schema's id in front of the payload, as Confluent's
 * serializers write it. Nothing is asked before the first call.
 * @param url `https://registry:8081`, with a path where the registry is below one.
 * @throws InvalidError for the URL and the options
 */
export function confluentRegistry(url: string, options?: ConfluentOptions): SchemaRegistry {
  const read = new OptionReader<ConfluentOptions>("schema registry", options, known)
  const target = checkUrl(url)
  const auth = authorization(options?.auth, target)
  const signal = options?.signal
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new InvalidError(`schema registry: option "signal" is ${shown(signal)}; it must be an AbortSignal`)
  }
  const http = new RegistryHttp({
    url: target,
    headers: { ...checkHeaders(options?.headers), ...(auth === undefined ? {} : { authorization: auth }) },
    attempts: {
      timeoutMs: read.duration("timeoutMs", { fallback: 10_000 }),
      retries: read.whole("retries", { min: 0, fallback: 3 }),
      retryBackoffMs: read.duration("retryBackoffMs", { fallback: 250 }),
    },
    clock: systemClock,
    fetch: read.callback<typeof globalThis.fetch>("fetch") ?? globalThis.fetch,
    signal,
  })
  return new ConfluentRegistry(http, read.whole("cacheSize", { min: 1, fallback: 1000 }))
}

function checkUrl(url: unknown): URL {
  const target = typeof url === "string" && URL.canParse(url) ? new URL(url) : undefined
  if (target === undefined || !["http:", "https:"].includes(target.protocol)) {
    throw new InvalidError(`schema registry: ${shown(withoutSecrets(url))} is not a URL of http or https`)
  }
  if (target.search !== "" || target.hash !== "") {
    throw new InvalidError("schema registry: the URL must have no query and no fragment")
  }
  return target
}

function withoutSecrets(url: unknown): unknown {
  return typeof url === "string" ? url.replace(/\/\/[^/@]*@/, "//") : url
}

function authorization(auth: ConfluentAuth | undefined, url: URL): string | undefined {
  if (auth === undefined) {
    if (url.username === "" && url.password === "") return undefined
    return basic(decodeURIComponent(url.username), decodeURIComponent(url.password))
  }
  const { username, password, token, ...others } = Object(auth) as Readonly<Record<string, unknown>>
  if (Object.keys(others).length === 0) {
    if (typeof token === "string" && token !== "" && username === undefined && password === undefined)
      return `Bearer ${token}`
    if (typeof username === "string" && typeof password === "string" && token === undefined)
      return basic(username, password)
  }
  throw new InvalidError(`schema registry: option "auth" must be { username, password } or { token }`)
}

function basic(username: string, password: string): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`
}

function checkHeaders(headers: unknown): Readonly<Record<string, string>> {
  if (headers === undefined) return {}
  const entries = Object.entries(Object(headers))
  const valid =
    typeof headers === "object" && headers !== null && entries.every(([, value]) => typeof value === "string")
  if (valid) return headers as Readonly<Record<string, string>>
  throw new InvalidError(`schema registry: option "headers" is ${shown(headers)}; it must be an object of strings`)
}
