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
  // Each import has its rejection handled where it stands, so that bundlers take a driver that is not installed for an optional one.
  iggy: {
    target: "servers",
    load: () => import("@millrace/iggy").then(({ iggyDriver }) => iggyDriver, absent("iggy")),
  },
  kafka: {
    target: "servers",
    load: () => import("@millrace/kafka").then(({ kafkaDriver }) => kafkaDriver, absent("kafka")),
  },
  nats: {
    target: "servers",
    load: () => import("@millrace/nats").then(({ natsDriver }) => natsDriver, absent("nats")),
  },
}

/**
 * The driver for a connection string.
 * @throws InvalidError for an unknown scheme (the message lists the known ones) or a target that does not fit the scheme
 */
export function findDriver(
  connection: ConnectionString,
  entries: Readonly<Record<string, DriverEntry>> = driverEntries,
): DriverEntry {
  const { scheme } = connection
  const schemes = Object.keys(entries).map((name) => `${name}:`)
  const entry = Object.hasOwn(entries, scheme) ? entries[scheme] : undefined
  if (entry === undefined) {
    throw new InvalidError(`unknown scheme "${scheme}": known are ${schemes.join(", ")}`, { context: { scheme } })
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

/** What a driver's import fails with: UnsupportedError when its package is not installed beside `millrace`. */
function absent(scheme: string): (cause: unknown) => never {
  return (cause) => {
    const name = `@millrace/${scheme}`
    const { code, message = "" } = cause as NodeJS.ErrnoException
    const isMissing = code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND"
    if (!isMissing || !message.includes(name)) throw cause
    throw new UnsupportedError(`${scheme}: connection strings need the package ${name}: npm install ${name}`, {
      context: { scheme },
      cause,
    })
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
