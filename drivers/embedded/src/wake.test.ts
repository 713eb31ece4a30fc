import assert from "node:assert/strict"
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, it } from "node:test"
import { systemClock, VirtualClock } from "@millrace/runtime"
import { WakeFile } from "./wake.ts"

function withFile(run: (path: string) => void | Promise<void>): () => Promise<void> {
  return async () => {
    const directory = mkdtempSync(join(tmpdir(), "millrace-test-"))
    try {
      await run(join(directory, "wake"))
    } finally {
      rmSync(directory, { recursive: true, force: true })
    }
  }
}

function touches(path: string): number {
  return readFileSync(path).readUInt32LE(0)
}

describe("a wake file", () => {
  it(
    "is touched at once, and then once for all touches of a few milliseconds",
    withFile(async (path) => {
      const clock = new VirtualClock()
      const wake = new WakeFile(path, clock, () => {})
      const before = touches(path)
      wake.touch()
      const first = touches(path)
      assert.notEqual(first, before)
      for (let i = 0; i < 10; i++) wake.touch()
      assert.equal(touches(path), first)
      await clock.advance(3)
      assert.notEqual(touches(path), first)
      assert.equal(clock.timers, 0)
      wake.close()
    }),
  )

  it(
    "wakes one who watches it elsewhere",
    withFile(async (path) => {
      const woken = Promise.withResolvers<void>()
      const watcher = new WakeFile(path, systemClock, () => woken.resolve())
      const other = new WakeFile(path, systemClock, () => {})
      // A watch keeps no process alive, so something else must while the test waits.
      const late = systemClock.setTimer(30_000, () => woken.reject(new Error("nobody was woken within 30 s")))
      watcher.watch()
      other.touch()
      await woken.promise
      late.cancel()
      watcher.close()
      other.close()
    }),
  )

  it(
    "ends its watch when nobody has waited for a while, and gives a touch that is due before it closes",
    withFile(async (path) => {
      const clock = new VirtualClock()
      const wake = new WakeFile(path, clock, () => {})
      let needed = true
      wake.stillNeeded = () => needed
      wake.watch()
      await clock.advance(20_000)
      assert.equal(clock.timers, 1)
      needed = false
      await clock.advance(10_000)
      assert.equal(clock.timers, 0)
      wake.touch()
      const first = touches(path)
      wake.touch()
      wake.close()
      assert.notEqual(touches(path), first)
      assert.equal(statSync(path).size, 4)
    }),
  )
})
