/** Which locks of the write-ahead log a process holds, from /proc/locks, so that a trial can stop it outside of a commit. */
import { readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { isStopped, type TrialChild } from "./trial-child.ts"
import { until } from "./until.ts"

/**
 * Bytes of the `-shm` file that SQLite locks (its document "WAL-mode File Format", section 2.3): 120 while a transaction writes,
 * 121 while it checkpoints, 122 while it recovers, 123 to 127 while something reads.
 */
const firstLockByte = 120
const lastLockByte = 127

/** The lock bytes, 120 to 127, that a process holds on the write-ahead log of a store. */
export function heldLocks(pid: number, directory: string): number[] {
  const inodes = readdirSync(directory)
    .filter((file) => file.endsWith("-shm"))
    .map((file) => String(statSync(join(directory, file)).ino))
  return readFileSync("/proc/locks", "utf8")
    .split("\n")
    .flatMap((line) => parseLock(line, pid, inodes))
}

function parseLock(line: string, pid: number, inodes: readonly string[]): number[] {
  const [, kind, , , owner, file, from, to] = line.trim().split(/\s+/)
  if (kind !== "POSIX" || Number(owner) !== pid || !inodes.includes(file?.split(":")[2] ?? "")) return []
  const end = to === "EOF" ? lastLockByte : Math.min(Number(to), lastLockByte)
  const start = Math.max(Number(from), firstLockByte)
  return Array.from({ length: Math.max(0, end - start + 1) }, (_, index) => start + index)
}

/** Tries before a process is given up that holds a lock whenever it is stopped. */
const stopTries = 200

/**
 * Stops a process (SIGSTOP) at a moment at which it holds no lock of the store's log: neither in a commit nor in a read.
 * @returns how many times it was met inside one, and let go on.
 */
export async function stopOutsideLocks(child: TrialChild, directory: string): Promise<number> {
  for (let tries = 0; tries < stopTries; tries += 1) {
    child.signal("SIGSTOP")
    await until(() => isStopped(child.pid), "the process to stop")
    if (heldLocks(child.pid, directory).length === 0) return tries
    child.signal("SIGCONT")
    await sleep(1 + (tries % 7))
  }
  throw new Error(`process ${child.pid} held a lock of the store each of ${stopTries} times it was stopped`)
}
