/** Which process a group's member lives in, and whether that process still runs. Linux's /proc tells both; elsewhere a signal 0. */
import { readFileSync, readlinkSync } from "node:fs"
import { hostname } from "node:os"

/** A process, told apart from a later one with the same number. */
export interface ProcessIdentity {
  readonly pid: number
  /** The kernel's start time in clock ticks since boot; empty where the system does not tell. */
  readonly started: string
  /** Where the number means this process: boot and pid namespace, or the host's name. Elsewhere only heartbeats can tell. */
  readonly place: string
}

/** What the groups need to know of processes. Injected, so that tests can end processes that never ran. */
export interface ProcessTable {
  readonly self: ProcessIdentity
  /** Whether the process is surely gone. False when it runs, and when this place cannot know. */
  isGone(process: ProcessIdentity): boolean
}

/** The system's processes, seen from this one. */
export function systemProcesses(): ProcessTable {
  const place = placeHere()
  const started = look(process.pid)
  const self: ProcessIdentity = { pid: process.pid, started: typeof started === "string" ? started : "", place }
  return {
    self,
    isGone(other) {
      if (other.place !== place) return false
      const seen = look(other.pid)
      if (seen === undefined) return !answersSignals(other.pid)
      return seen === null || (other.started !== "" && seen !== other.started)
    },
  }
}

/** Containers that share a directory number their processes apart, so the namespace belongs to the place. */
function placeHere(): string {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim()
    return `${boot}/${readlinkSync("/proc/self/ns/pid")}`
  } catch {
    return hostname()
  }
}

/**
 * The start time, field 22 of /proc/<pid>/stat (proc_pid_stat(5)); `null` when the process has ended and only waits to be collected
 * by its parent (states Z and X); `undefined` when /proc does not say: no such process, another user's on a system that hides them,
 * or no /proc at all.
 */
function look(pid: number): string | null | undefined {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "latin1")
  } catch {
    return undefined
  }
  // The second field is the program's name in brackets and may hold blanks and brackets itself.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
  return fields[0] === "Z" || fields[0] === "X" ? null : fields[19]
}

/** A process that may not be signalled answers too: it runs. */
function answersSignals(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH"
  }
}
