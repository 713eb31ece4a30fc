import assert from "node:assert/strict"
import { test } from "node:test"
import { systemClock } from "./clock.ts"

test("the system clock tells microseconds of today and never goes back", () => {
  const wall = systemClock.nowMicros()
  const apart = wall / 1000n - BigInt(Date.now())
  assert.ok(apart > -1000n && apart < 1000n, `${apart} ms apart`)
  const before = systemClock.monotonicMs()
  assert.ok(systemClock.monotonicMs() >= before)
})

test("a timer beyond 2^31 ms does not fire at once", async () => {
  let fired = false
  const timer = systemClock.setTimer(2 ** 33, () => {
    fired = true
  })
  await new Promise<void>((resolve) => systemClock.setTimer(5, resolve))
  timer.cancel()
  assert.equal(fired, false)
})
