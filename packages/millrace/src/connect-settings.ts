/** What a connection is made with: the argument, the environment and the defaults, joined and checked (seed 000 "Connect", table 1.14). */
import { InvalidError } from "@millrace/contract"
import { checkEncryptor, checkRegistry, type Encryptor, type SchemaRegistry } from "@millrace/core"

/** Options of `connect`. Each may come from the environment instead; given in both places, the two must be equal. */
export interface ConnectOptions {
  /** The default stream, which `client.topic(name)` uses. Default: none. Environment: `MILLRACE_STREAM`. */
  readonly stream?: string
  /** The time for connecting as a whole, 1 to 2,147,483,647 ms. Default 30,000. Environment: `MILLRACE_CONNECT_TIMEOUT_MS`. */
  readonly connectTimeoutMs?: number
  /** The time for each attempt of a publish, 1 to 2,147,483,647 ms. Default 60,000. Environment: `MILLRACE_PUBLISH_TIMEOUT_MS`. */
  readonly publishTimeoutMs?: number
  /** How often a publish is tried again after a failure that may pass, 0 to 2,147,483,647. Default 3. Environment: `MILLRACE_PUBLISH_MAX_RETRIES`. */
  readonly publishRetries?: number
  /**
   * The wait before the first of these retries, 1 to 2,147,483,647 ms; it doubles with each, up to 30 s. Default 250.
   * Environment: `MILLRACE_PUBLISH_RETRY_BACKOFF_MS`.
   */
  readonly publishRetryBackoffMs?: number
  /** What payloads and headers are encrypted and decrypted with (`encryptor`), unless a producer or consumer says otherwise. Default: nothing. */
  readonly encryptor?: Encryptor
  /** Where `client.schemas` and `topic.schema(id)` find schemas, such as a `confluentRegistry`. Default: the backend's small state. */
  readonly schemas?: SchemaRegistry
  /** Ends the attempt to connect with a `CancelledError`. Once there is a client, it does nothing. */
  readonly signal?: AbortSignal
}

/** All that `connect` needs, complete and in range. */
export interface ConnectSettings {
  readonly url: string
  readonly stream?: string
  readonly connectTimeoutMs: number
  readonly publishTimeoutMs: number
  readonly publishRetries: number
  readonly publishRetryBackoffMs: number
  readonly encryptor?: Encryptor
  readonly schemas?: SchemaRegistry
  readonly signal?: AbortSignal
}

/** Environment variables by name, as in `process.env`. An empty value counts as not set. */
export type Environment = Readonly<Record<string, string | undefined>>

interface NumberSetting {
  readonly variable: string
  readonly least: number
  readonly fallback: number
}

const greatest = 2_147_483_647

const numbers: Readonly<
  Record<"connectTimeoutMs" | "publishTimeoutMs" | "publishRetries" | "publishRetryBackoffMs", NumberSetting>
> = {
  connectTimeoutMs: { variable: "MILLRACE_CONNECT_TIMEOUT_MS", least: 1, fallback: 30_000 },
  publishTimeoutMs: { variable: "MILLRACE_PUBLISH_TIMEOUT_MS", least: 1, fallback: 60_000 },
  publishRetries: { variable: "MILLRACE_PUBLISH_MAX_RETRIES", least: 0, fallback: 3 },
  publishRetryBackoffMs: { variable: "MILLRACE_PUBLISH_RETRY_BACKOFF_MS", least: 1, fallback: 250 },
}

const known: readonly string[] = ["stream", ...Object.keys(numbers), "encryptor", "schemas", "signal"]

/**
 * Joins argument, environment and defaults.
 * @throws InvalidError for an unknown option (the message lists the known ones), a value out of range, a value that differs between
 *   argument and environment (naming both places), or when no connection string is given at all.
 */
export function resolveSettings(
  url: string | undefined,
  options: ConnectOptions,
  environment: Environment,
): ConnectSettings {
  checkKeys(options)
  const stream = resolveStream(options.stream, environment)
  return {
    url: resolveUrl(url, environment),
    connectTimeoutMs: resolveNumber("connectTimeoutMs", options, environment),
    publishTimeoutMs: resolveNumber("publishTimeoutMs", options, environment),
    publishRetries: resolveNumber("publishRetries", options, environment),
    publishRetryBackoffMs: resolveNumber("publishRetryBackoffMs", options, environment),
    ...(stream === undefined ? {} : { stream }),
    ...(options.encryptor === undefined ? {} : { encryptor: checkEncryptor("connect", options.encryptor) }),
    ...(options.schemas === undefined ? {} : { schemas: checkRegistry("connect", options.schemas) }),
    ...(options.signal === undefined ? {} : { signal: checkSignal(options.signal) }),
  }
}

function checkKeys(options: ConnectOptions): void {
  if (typeof options !== "object" || options === null) {
    throw new InvalidError(`the options of connect are an object, not ${options === null ? "null" : typeof options}`)
  }
  for (const key of Object.keys(options)) {
    if (!known.includes(key)) {
      throw new InvalidError(`unknown option "${key}": connect knows ${known.join(", ")}`, { context: { option: key } })
    }
  }
}

/** The two texts are not shown when they differ, since they may hold passwords. */
function resolveUrl(url: string | undefined, environment: Environment): string {
  const fromEnvironment = read(environment, "MILLRACE_CONNECTION_STRING")
  if (url !== undefined && fromEnvironment !== undefined && url !== fromEnvironment) {
    throw new InvalidError(
      "the connection string given to connect differs from the one in MILLRACE_CONNECTION_STRING: give one of them, or the same",
    )
  }
  const chosen = url ?? fromEnvironment
  if (chosen === undefined) {
    throw new InvalidError(
      'no connection string: give one to connect, for example "file:./data", or set MILLRACE_CONNECTION_STRING',
    )
  }
  return chosen
}

function resolveStream(given: string | undefined, environment: Environment): string | undefined {
  if (given !== undefined && typeof given !== "string") {
    throw new InvalidError(`option "stream" is a text, not ${given === null ? "null" : typeof given}`)
  }
  const fromEnvironment = read(environment, "MILLRACE_STREAM")
  refuseConflict("stream", given, { variable: "MILLRACE_STREAM", value: fromEnvironment })
  return given ?? fromEnvironment
}

function resolveNumber(name: keyof typeof numbers, options: ConnectOptions, environment: Environment): number {
  const { variable, least, fallback } = numbers[name]
  const text = read(environment, variable)
  const fromEnvironment = text === undefined ? undefined : /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN
  checkRange(variable, { value: fromEnvironment, shown: JSON.stringify(text), least })
  const given = options[name]
  checkRange(`option "${name}"`, { value: given, shown: String(given), least })
  refuseConflict(name, given, { variable, value: fromEnvironment })
  return given ?? fromEnvironment ?? fallback
}

function checkRange(
  what: string,
  { value, shown, least }: { readonly value: number | undefined; readonly shown: string; readonly least: number },
): void {
  if (value === undefined || (Number.isInteger(value) && value >= least && value <= greatest)) return
  throw new InvalidError(`${what} is ${shown}: it must be a whole number from ${least} to ${greatest}`)
}

function refuseConflict<T>(
  name: string,
  given: T | undefined,
  environment: { readonly variable: string; readonly value: T | undefined },
): void {
  if (given === undefined || environment.value === undefined || given === environment.value) return
  throw new InvalidError(
    `option "${name}" is ${JSON.stringify(given)} but ${environment.variable} is ${JSON.stringify(environment.value)}: give one of them, or the same`,
  )
}

function checkSignal(signal: AbortSignal): AbortSignal {
  if (signal instanceof AbortSignal) return signal
  throw new InvalidError(`option "signal" is an AbortSignal, not ${signal === null ? "null" : typeof signal}`)
}

function read(environment: Environment, variable: string): string | undefined {
  const text = environment[variable]
  return text === "" ? undefined : text
}
