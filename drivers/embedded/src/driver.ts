import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { ConnectTarget, Driver, Session } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { WorkerChannel } from "./channel.ts"
import { storageError } from "./engine/storage-error.ts"
import { embeddedManifest } from "./manifest.ts"
import { EmbeddedSession } from "./session.ts"

/**
 * The embedded log: `file:./data` is a store in a directory, shared by any number of sessions, threads and processes; `memory:` is one
 * of this session alone, in a temporary directory that is never synced and goes with it.
 *
 * An unclosed session keeps the process alive only while a call is under way, so a waiting reader does and an idle one does not.
 */
export const embeddedDriver: Driver = {
  schemes: ["file", "memory"],
  options: {},
  manifest: embeddedManifest,
  async connect(target, { timeoutMs, signal }): Promise<Session> {
    const place = placeOf(target)
    const options = { clock: systemClock, timeoutMs, ...(signal === undefined ? {} : { signal }) }
    try {
      const channel = await WorkerChannel.open({ path: place.path, sync: place.sync }, options)
      return new EmbeddedSession(channel, { clock: systemClock, random: systemRandom, afterClose: place.remove })
    } catch (error) {
      place.remove()
      throw error
    }
  },
}

interface Place {
  readonly path: string
  readonly sync: boolean
  /** Removes what only this session has. */
  readonly remove: () => void
}

function placeOf(target: ConnectTarget): Place {
  if (target.scheme !== "memory") return { path: target.path, sync: true, remove: () => {} }
  const path = newTemporary()
  return { path, sync: false, remove: () => removeTemporary(path) }
}

/** Directories of `memory:` stores that are open, so that what is left at the end of the process goes too. */
const temporary = new Set<string>()

function newTemporary(): string {
  let path: string
  try {
    path = mkdtempSync(join(tmpdir(), "millrace-"))
  } catch (error) {
    throw storageError(error, "making the temporary directory of a memory: store")
  }
  if (temporary.size === 0) process.once("exit", removeAll)
  temporary.add(path)
  return path
}

function removeTemporary(path: string): void {
  rmSync(path, { recursive: true, force: true })
  temporary.delete(path)
  if (temporary.size === 0) process.removeListener("exit", removeAll)
}

function removeAll(): void {
  for (const path of temporary) rmSync(path, { recursive: true, force: true })
}
