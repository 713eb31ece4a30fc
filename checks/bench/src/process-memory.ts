/** Memory of a process, as the kernel counts it. Linux only. */
import { readFileSync } from "node:fs"

/**
 * `RssAnon` of a process, in bytes: heap, buffers and stacks, without file pages.
 * @throws Error when there is no such process, or no `RssAnon` in its status (another system than Linux).
 */
export function anonymousBytes(pid: number): number {
  return statusBytes(pid, "RssAnon")
}

/** `VmRSS` of a process, in bytes: everything of it that is in memory. @throws as `anonymousBytes` */
export function residentBytes(pid: number): number {
  return statusBytes(pid, "VmRSS")
}

function statusBytes(pid: number, field: "RssAnon" | "VmRSS"): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8")
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(status)
  if (match === null) throw new Error(`/proc/${pid}/status has no ${field}: this figure needs Linux 4.5 or later`)
  return Number(match[1]) * 1024
}
