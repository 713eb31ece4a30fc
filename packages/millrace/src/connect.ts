import { env } from "node:process"
import type { Client } from "@millrace/core"
import { ConnectionWatch, openClient } from "@millrace/core"
import { systemClock, systemRandom } from "@millrace/runtime"
import type { ConnectOptions } from "./connect-settings.ts"
import { resolveSettings } from "./connect-settings.ts"
import { parseConnectionString } from "./connection-string.ts"
import { findDriver, targetOf } from "./drivers.ts"
import { openSession } from "./open-session.ts"

/**
 * Connects to the backend that the connection string names: `file:./data` opens (and where need be creates) a log in that directory,
 * `memory:` one that is gone when the client closes. Close the client, or hold it with `await using`.
 *
 * @param url Default: `MILLRACE_CONNECTION_STRING`. The scheme picks the driver, whose options follow a `?`.
 * @throws InvalidError for a connection string or option that is wrong, UnsupportedError for a backend without a driver, TimeoutError,
 *   CancelledError once `signal` fires, and what the backend says: ConnectionError, PermissionError, StorageError, CorruptionError …
 */
export async function connect(url?: string, options: ConnectOptions = {}): Promise<Client> {
  const settings = resolveSettings(url, options, env)
  const connection = parseConnectionString(settings.url)
  const driver = await findDriver(connection).load()
  const watch = new ConnectionWatch()
  const session = await openSession(driver, targetOf(connection, driver), {
    timeoutMs: settings.connectTimeoutMs,
    clock: systemClock,
    onConnection: watch.notify,
    ...(settings.signal === undefined ? {} : { signal: settings.signal }),
  })
  const { stream, publishTimeoutMs, publishRetries, publishRetryBackoffMs } = settings
  const publish = { publishTimeoutMs, publishRetries, publishRetryBackoffMs }
  try {
    return openClient(session, stream === undefined ? publish : { ...publish, stream }, {
      clock: systemClock,
      random: systemRandom,
      connection: watch,
    })
  } catch (error) {
    await session.close()
    throw error
  }
}
