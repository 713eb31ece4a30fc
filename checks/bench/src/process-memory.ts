/** Anonymous memory of a process, as the kernel counts it. Linux only. */
import { readFileSync } from "node:fs"

/**
 * `RssAnon` of a process, in bytes: heap, buffers and stacks, without file pages.
 * @throws Error when there is no such process, or no `RssAnon` in its status (another system than Linux).
 */
export function anonymousBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8")
  const match = /^RssAnon:\s+(\d+) kB$/m.exec(status)
  if (match === null) throw new Error(`/proc/${pid}/status has no RssAnon: this figure needs Linux 4.5 or later`)
  return Number(match[1]) * 1024
}
