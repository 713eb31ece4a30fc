import { readFileSync } from "node:fs"

/** Whether a process exists and is not merely waiting to be buried. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))
  } catch {
    // No such file system here, or gone meanwhile: asked again by whoever waits.
    return true
  }
}
