/** The drivers that `connect` knows, by the scheme of the connection string. */
import type { ConnectTarget, Driver } from "@millrace/contract"
import { InvalidError, UnsupportedError } from "@millrace/contract"
import { embeddedDriver } from "@millrace/embedded"
import { readConnectionOptions } from "./connection-options.ts"
import type { ConnectionString } from "./connection-string.ts"

/** What a connection string of a scheme must name. */
export type TargetShape = "directory" | "nothing" | "servers"

/** One scheme: what its connection strings name, and where its driver comes from. */
export interface DriverEntry {
  readonly target: TargetShape
  /** Drivers other than the embedded one are imported only when their scheme is met, so that a bundle holds what is used. */
  load(): Promise<Driver>
}

/** The schemes with a driver. */
const driverEntries: Readonly<Record<string, DriverEntry>> = {
  file: { target: "directory", load: () => Promise.resolve(embeddedDriver) },
  memory: { target: "nothing", load: () => Promise.resolve(embeddedDriver) },
}

/** Schemes that are kept for drivers which this release does not have. */
const reserved: readonly string[] = ["kafka", "nats", "iggy"]

/**
 * The driver for a connection string.
 * @throws InvalidError for an unknown scheme (the message lists the known ones) or a target that does not fit the scheme,
 *   UnsupportedError for the scheme of a broker that has no driver here.
 */
export function findDriver(
  connection: ConnectionString,
  entries: Readonly<Record<string, DriverEntry>> = driverEntries,
): DriverEntry {
  const { scheme } = connection
  const schemes = Object.keys(entries).map((name) => `${name}:`)
  const entry = Object.hasOwn(entries, scheme) ? entries[scheme] : undefined
  if (entry === undefined) {
    const context = { context: { scheme } }
    if (reserved.includes(scheme)) {
      throw new UnsupportedError(
        `this release has no driver for ${scheme}: it connects to ${schemes.join(" and ")} only. Start on file:./data: the program stays the same`,
        context,
      )
    }
    throw new InvalidError(`unknown scheme "${scheme}": known are ${schemes.join(", ")}`, context)
  }
  checkTarget(connection, entry.target)
  return entry
}

/** The target as the driver takes it, its options read by the driver's own table. @throws InvalidError */
export function targetOf(connection: ConnectionString, driver: Driver): ConnectTarget {
  return {
    scheme: connection.scheme,
    hosts: connection.hosts,
    path: connection.path,
    options: readConnectionOptions(connection.options, connection.scheme, driver.options),
    ...(connection.username === undefined ? {} : { username: connection.username }),
    ...(connection.password === undefined ? {} : { password: connection.password }),
  }
}

function checkTarget({ scheme, hasAuthority, path }: ConnectionString, target: TargetShape): void {
  if (target === "servers") {
    if (hasAuthority) return
    throw new InvalidError(`a ${scheme}: connection string names servers: write ${scheme}://host:port`)
  }
  if (target === "directory") {
    if (!hasAuthority && path !== "") return
    throw new InvalidError(`a ${scheme}: connection string names a directory: write for example ${scheme}:./data`)
  }
  if (!hasAuthority && path === "") return
  throw new InvalidError(`a ${scheme}: connection string has nothing behind the colon but options: write ${scheme}:`)
}
