import assert from "node:assert/strict"
import { test } from "node:test"
import { VirtualClock } from "@millrace/runtime"
import { Pauses } from "./pauses.ts"

test("a pause takes its time", async () => {
  const clock = new VirtualClock()
  const pauses = new Pauses(clock)
  let over = false
  const waited = pauses.wait(100).then(() => {
    over = true
  })
  await clock.advance(99)
  await Promise.resolve()
  assert.ok(!over)
  await clock.advance(1)
  await waited
})

test("closing ends every pause, and those that come later", async () => {
  const pauses = new Pauses(new VirtualClock())
  const waiting = [pauses.wait(1_000), pauses.wait(2_000)]
  pauses.close()
  await Promise.all(waiting)
  await pauses.wait(1_000)
})
