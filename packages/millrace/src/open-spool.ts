import type { Session } from "@millrace/contract"
import { embeddedDriver } from "@millrace/embedded"
import { systemClock } from "@millrace/runtime"
import { openSession } from "./open-session.ts"
import { lockSpool, type SpoolLock } from "./spool-lock.ts"

/** The time for opening the log of a spool, in ms. */
const openTimeoutMs = 30_000

/**
 * Opens the embedded log of a spool, for this producer alone; the directory is made where it is missing. Closing the session lets others in.
 * @throws InvalidError while another producer has it, naming the directory and whose it is; PermissionError, StorageError, DiskFullError,
 *   CorruptionError, and whatever else the embedded log says
 */
export async function openSpool(directory: string): Promise<Session> {
  const lock = lockSpool(directory)
  try {
    const target = { scheme: "file", hosts: [], path: directory, options: {} }
    const session = await openSession(embeddedDriver, target, { timeoutMs: openTimeoutMs, clock: systemClock })
    return locked(session, lock)
  } catch (error) {
    lock.release()
    throw error
  }
}

/** The session, which lets go of the lock when it is closed. */
function locked(session: Session, lock: SpoolLock): Session {
  let closing: Promise<void> | undefined
  return {
    manifest: session.manifest,
    catalog: session.catalog,
    log: session.log,
    offsets: session.offsets,
    groups: session.groups,
    queues: session.queues,
    transactions: session.transactions,
    state: session.state,
    native: session.native,
    close: () => {
      closing ??= session.close().finally(() => lock.release())
      return closing
    },
  }
}
