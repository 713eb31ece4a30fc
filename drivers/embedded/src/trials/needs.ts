/** What a trial needs of the machine. What is missing is a skip with its reason, `needs <what>: <why it is not there>`. */
import { spawnSync } from "node:child_process"
import { existsSync } from "node:fs"
import type { TestContext } from "node:test"

/** A tool or a right that not every machine has. */
export type Need = "strace" | "root" | "tmpfs" | "locks" | "stop"

/** Why it is not there. */
const checks: Record<Need, () => string | undefined> = {
  strace: () =>
    spawnSync("strace", ["-o", "/dev/null", "true"], { stdio: "ignore" }).status === 0
      ? undefined
      : "it is not installed, or may not trace",
  root: () => (process.getuid?.() === 0 ? undefined : "only root may mount a disk or change its user"),
  tmpfs: () => (process.platform === "linux" ? checks.root() : "a small disk can only be mounted on Linux"),
  locks: () => (existsSync("/proc/locks") ? undefined : "/proc/locks is only there on Linux"),
  stop: () => (existsSync("/proc/self/stat") ? undefined : "/proc is only there on Linux"),
}

/** Skips the running test with the reason when something is missing, and answers whether it may go on. */
export function meets(t: TestContext, ...needs: readonly Need[]): boolean {
  for (const need of needs) {
    const reason = checks[need]()
    if (reason === undefined) continue
    t.skip(`needs ${need}: ${reason}`)
    return false
  }
  return true
}

/** Whether all is there, for a trial that shows less without it. */
export function has(...needs: readonly Need[]): boolean {
  return needs.every((need) => checks[need]() === undefined)
}

/** Whether the long runs were asked for (`MILLRACE_LONG=1`). */
export const long: boolean = process.env.MILLRACE_LONG === "1"
