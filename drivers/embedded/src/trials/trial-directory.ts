/** Directories that a trial leaves nothing of. */
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { atEnd, type Owner } from "./trial-end.ts"

/**
 * A fresh directory, removed after the test.
 * @param options.inMemory where the machine has a file system in memory, it is there: for images that need no real sync.
 */
export function trialDirectory(t: Owner, options: { readonly inMemory?: boolean } = {}): string {
  const parent = options.inMemory && existsSync("/dev/shm") ? "/dev/shm" : tmpdir()
  const directory = mkdtempSync(join(parent, "millrace-trial-"))
  atEnd(t, () => rmSync(directory, { recursive: true, force: true }))
  return directory
}

/** The bytes of every file of a directory whose name matches, 0 when there is none. */
export function bytesOf(directory: string, name: RegExp = /./): number {
  let bytes = 0
  for (const file of readdirSync(directory)) {
    if (name.test(file)) bytes += statSync(join(directory, file), { throwIfNoEntry: false })?.size ?? 0
  }
  return bytes
}
