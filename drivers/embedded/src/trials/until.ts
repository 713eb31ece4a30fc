/** Waiting in trials: for a condition, never for a time alone. */
import { setTimeout as sleep } from "node:timers/promises"

/** Waits for a condition, asking each few milliseconds. @throws Error when it has not come true in time. */
export async function until(condition: () => boolean, what: string, patienceMs: number = 20_000): Promise<void> {
  const end = performance.now() + patienceMs
  while (!condition()) {
    if (performance.now() > end) throw new Error(`waited ${patienceMs} ms in vain for ${what}`)
    await sleep(3)
  }
}
