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
  iggy: { target: "servers", load: () => installed("iggy", async () => (await import("@millrace/iggy")).iggyDriver) },
  kafka: {
    target: "servers",
    load: () => installed("kafka", async () => (await import("@millrace/kafka")).kafkaDriver),
  },
  nats: { target: "servers", load: () => installed("nats", async () => (await import("@millrace/nats")).natsDriver) },
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

/** @throws UnsupportedError when the package of the driver is not installed beside `millrace` */
async function installed(scheme: string, load: () => Promise<Driver>): Promise<Driver> {
  const name = `@millrace/${scheme}`
  try {
    return await load()
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code !== "ERR_MODULE_NOT_FOUND" || !message.includes(name)) throw cause
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
