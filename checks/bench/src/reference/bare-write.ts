/** The second reference: `write` and `fdatasync` in the calling thread, one at a time. The least that a durable write can take. */
import { closeSync, fdatasyncSync, openSync, writeSync } from "node:fs"
import { systemClock } from "@millrace/runtime"

/** Appends `payload` `count` times to a new file and answers how long each append with its sync took, in ms. */
export function bareWrites(path: string, payload: Uint8Array, count: number): number[] {
  const file = openSync(path, "wx")
  try {
    const times: number[] = []
    for (let index = 0; index < count; index++) {
      const start = systemClock.monotonicMs()
      writeSync(file, payload)
      fdatasyncSync(file)
      times.push(systemClock.monotonicMs() - start)
    }
    return times
  } finally {
    closeSync(file)
  }
}
