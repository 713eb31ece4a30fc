/** A connection string's parts as the driver uses them. */
import {
  AuthenticationError,
  type ConnectTarget,
  InvalidError,
  type OptionKind,
  UnsupportedError,
} from "@millrace/contract"
import type { Address } from "./connection/connection.machine.ts"
import type { Credentials } from "./connection/login.ts"
import type { WireVersion } from "./wire/version.ts"

/** Where servers listen for TCP. */
const defaultPort = 8090

/** The options of a connection string, by the names that Apache Iggy's own have where it has them (iggy-wire.md: Connection strings). */
export const iggyOptions: Readonly<Record<string, OptionKind>> = {
  /** How often a sign of life is sent; 5 s. A server evicts members of groups that are silent for longer than its own limit. */
  heartbeat_interval: "duration",
  /** For one request and its reply; 30 s. */
  request_timeout: "duration",
  /** `0.11` or `0.12`. Absent: what the server speaks. */
  protocol: "text",
  /** Only `false`. */
  tls: "flag",
}

export interface IggyTarget {
  readonly addresses: readonly Address[]
  readonly credentials: Credentials
  readonly heartbeatMs: number
  readonly requestTimeoutMs: number
  readonly version: WireVersion | undefined
}

/**
 * @throws AuthenticationError without a user, InvalidError for an option that makes no sense, UnsupportedError for TLS
 */
export function readTarget({ hosts, username, password, path, options }: ConnectTarget): IggyTarget {
  if (options.tls === true) {
    throw new UnsupportedError(
      "the driver for Apache Iggy has no TLS in this release. Leave tls out, and put the server behind a tunnel",
    )
  }
  if (hosts.length === 0) throw new InvalidError("no host is given: expected iggy://user:password@host:port")
  if (path !== "" && path !== "/") {
    throw new InvalidError(
      `the path ${JSON.stringify(path)} means nothing here: expected iggy://user:password@host:port`,
    )
  }
  return {
    addresses: hosts.map(({ host, port }) => ({ host, port: port ?? defaultPort })),
    credentials: credentialsOf(username, password),
    heartbeatMs: duration(options, "heartbeat_interval", 5_000),
    requestTimeoutMs: duration(options, "request_timeout", 30_000),
    version: versionOf(options.protocol),
  }
}

/** A name without a password is a personal access token. */
function credentialsOf(username: string | undefined, password: string | undefined): Credentials {
  if (username === undefined || username === "") {
    throw new AuthenticationError(
      "Apache Iggy wants a user and a password, or a token: expected iggy://user:password@host:port or iggy://token@host:port",
    )
  }
  return password === undefined ? { token: username } : { username, password }
}

function duration(options: ConnectTarget["options"], name: string, fallbackMs: number): number {
  const value = options[name]
  if (value === undefined) return fallbackMs
  if (typeof value === "number" && value > 0) return value
  throw new InvalidError(`${name} is ${value} ms: expected a duration above 0, such as 5s`)
}

function versionOf(value: string | number | boolean | undefined): WireVersion | undefined {
  if (value === undefined || value === "0.11" || value === "0.12") return value
  throw new InvalidError(`protocol is ${JSON.stringify(value)}: expected 0.11 or 0.12`)
}
