import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { hostname } from "node:os"
import { join } from "node:path"
import type { DatabaseSync } from "node:sqlite"
import { InvalidError, MillraceError, PermissionError, StorageError } from "@millrace/contract"

/** A directory that is one producer's. */
export interface SpoolLock {
  /** Lets others in. The second time it does nothing. */
  release(): void
}

/** What SQLite says when somebody else has the file. */
const busy = 5

const codes: Readonly<Record<string, "permission" | "disk-full" | "invalid">> = {
  EACCES: "permission",
  EPERM: "permission",
  EROFS: "permission",
  ENOSPC: "disk-full",
  EDQUOT: "disk-full",
  ENOTDIR: "invalid",
  EEXIST: "invalid",
}

/** Of SQLite's primary result codes: READONLY, FULL, CANTOPEN, AUTH. */
const sqliteKinds: Readonly<Record<number, "permission" | "disk-full">> = {
  8: "permission",
  13: "disk-full",
  14: "permission",
  23: "permission",
}

/**
 * Takes a spool's directory, made where it is missing, for one producer of one process. The lock is the operating system's, on an empty
 * database `spool.lock` that is never written: it is gone with the process, however that ends, and keeps no other program waiting. Whose it
 * is stands in `spool.owner`, for the error of those who come second.
 * @throws InvalidError while another producer has it, PermissionError, DiskFullError, StorageError
 */
export function lockSpool(directory: string): SpoolLock {
  let database: DatabaseSync | undefined
  try {
    mkdirSync(directory, { recursive: true })
    // Only when there is a spool: on Node 22 SQLite announces itself as experimental.
    const { DatabaseSync } = process.getBuiltinModule("node:sqlite")
    database = new DatabaseSync(join(directory, "spool.lock"), { timeout: 0 })
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
    const owner = { pid: process.pid, host: hostname() }
    writeFileSync(join(directory, "spool.owner"), `${JSON.stringify(owner)}\n`)
  } catch (error) {
    if (database?.isOpen === true) database.close()
    throw refusal(error, directory)
  }
  const held = database
  return {
    release() {
      if (held.isOpen) held.close()
    },
  }
}

function refusal(thrown: unknown, directory: string): MillraceError {
  const { errcode, code, message } = thrown as { errcode?: number; code?: string; message: string }
  if (errcode !== undefined && (errcode & 0xff) === busy) {
    const owner = ownerOf(directory)
    return new InvalidError(
      `the spool in "${directory}" is in use by ${owner.text}: a spool belongs to one producer at a time. ` +
        "Give each its own directory, or wait until that one has shut down",
      { retryable: true, context: { directory, ...owner.context }, cause: thrown },
    )
  }
  const kind = codes[code ?? ""] ?? sqliteKinds[(errcode ?? 0) & 0xff] ?? "storage"
  const text = `the spool's directory "${directory}" cannot be used: ${message}`
  const details = { context: { directory }, cause: thrown }
  if (kind === "permission") return new PermissionError(text, details)
  if (kind === "invalid") return new InvalidError(text, details)
  return kind === "storage" ? new StorageError(text, details) : new MillraceError(kind, text, details)
}

/** Who has it, as far as that can be read. */
function ownerOf(directory: string): { readonly text: string; readonly context: { readonly pid?: number } } {
  try {
    const { pid, host } = JSON.parse(readFileSync(join(directory, "spool.owner"), "utf8")) as {
      readonly pid: number
      readonly host: string
    }
    if (pid === process.pid) return { text: `another producer of this process (${pid})`, context: { pid } }
    return { text: `process ${pid} on ${host}`, context: { pid } }
  } catch {
    return { text: "another producer", context: {} }
  }
}
