import type { ConnectTarget, Driver } from "@millrace/contract"
import type { Client, ClientRuntime } from "@millrace/core"
import { ConnectionWatch, openClient, readStatisticsSettings } from "@millrace/core"
import { systemClock, systemRandom } from "@millrace/runtime"
import type { ConnectOptions } from "./connect-settings.ts"
import { resolveSettings } from "./connect-settings.ts"
import { parseConnectionString } from "./connection-string.ts"
import { findDriver, targetOf } from "./drivers.ts"
import { openSession } from "./open-session.ts"
import { openSpool } from "./open-spool.ts"
import { loadOpenTelemetry, type MessagingSystem, openTelemetry } from "./open-telemetry.ts"

/**
 * Connects to the backend that the connection string names: `file:./data` opens (and where need be creates) a log in that directory,
 * `memory:` one that is gone when the client closes. Close the client, or hold it with `await using`.
 *
 * @param url Default: `MILLRACE_CONNECTION_STRING`. The scheme picks the driver, whose options follow a `?`.
 * @throws InvalidError for a connection string or option that is wrong, UnsupportedError for a backend without a driver, TimeoutError,
 *   CancelledError once `signal` fires, and what the backend says: ConnectionError, PermissionError, StorageError, CorruptionError …
 */
export async function connect(url?: string, options: ConnectOptions = {}): Promise<Client> {
  const settings = resolveSettings(url, options, process.env)
  const connection = parseConnectionString(settings.url)
  const entry = findDriver(connection)
  const driver = await entry.load()
  const target = targetOf(connection, driver)
  const observing = await observation(driver, target, entry.target === "servers")
  const watch = new ConnectionWatch()
  const session = await openSession(driver, target, {
    timeoutMs: settings.connectTimeoutMs,
    clock: systemClock,
    onConnection: watch.notify,
    ...(settings.signal === undefined ? {} : { signal: settings.signal }),
  })
  const { stream, encryptor, schemas, publishTimeoutMs, publishRetries, publishRetryBackoffMs } = settings
  const given = {
    publishTimeoutMs,
    publishRetries,
    publishRetryBackoffMs,
    ...(stream === undefined ? {} : { stream }),
    ...(encryptor === undefined ? {} : { encryptor }),
    ...(schemas === undefined ? {} : { schemas }),
  }
  try {
    return openClient(session, given, {
      clock: systemClock,
      random: systemRandom,
      connection: watch,
      openSpool,
      ...observing,
    })
  } catch (error) {
    await session.close()
    throw error
  }
}

/** What the client tells others of its producers: statistics, as the environment has it, and spans and metrics where they are collected. */
async function observation(
  driver: Driver,
  target: ConnectTarget,
  isRemote: boolean,
): Promise<Pick<ClientRuntime, "statistics" | "observe" | "telemetry">> {
  const statistics = readStatisticsSettings({
    intervalMs: process.env.MILLRACE_PRODUCER_TELEMETRY_INTERVAL_MS,
    maxProducers: process.env.MILLRACE_PRODUCER_TELEMETRY_MAX_PRODUCERS,
  })
  const api = await loadOpenTelemetry()
  const telemetry = api === undefined ? undefined : openTelemetry(api, messagingSystem(target, isRemote), systemClock)
  return {
    ...(statistics === undefined ? {} : { statistics }),
    ...(isRemote ? { observe: (options) => openSession(driver, target, { ...options, clock: systemClock }) } : {}),
    ...(telemetry === undefined ? {} : { telemetry }),
  }
}

function messagingSystem({ scheme, hosts }: ConnectTarget, isRemote: boolean): MessagingSystem {
  const [server, ...others] = hosts
  return {
    name: isRemote ? scheme : "millrace",
    ...(server === undefined || others.length > 0 ? {} : { server }),
  }
}
