import assert from "node:assert/strict"
import { test } from "node:test"
import { VirtualClock } from "./virtual-clock.ts"

test("timers fire in the order of their time, then of their setting, and see the time they were set for", async () => {
  const clock = new VirtualClock(0n)
  const fired: string[] = []
  clock.setTimer(20, () => fired.push(`b@${clock.monotonicMs()}`))
  clock.setTimer(10, () => fired.push(`a@${clock.monotonicMs()}`))
  clock.setTimer(20, () => fired.push(`c@${clock.monotonicMs()}`))
  await clock.advance(15)
  assert.deepEqual(fired, ["a@10"])
  await clock.advance(5)
  assert.deepEqual(fired, ["a@10", "b@20", "c@20"])
  assert.equal(clock.nowMicros(), 20_000n)
  assert.equal(clock.timers, 0)
})

test("a timer that a timer sets fires within the same move when it falls due", async () => {
  const clock = new VirtualClock()
  const fired: number[] = []
  const again = (): void => {
    fired.push(clock.monotonicMs())
    if (fired.length < 3) clock.setTimer(5, again)
  }
  clock.setTimer(5, again)
  await clock.advance(15)
  assert.deepEqual(fired, [5, 10, 15])
})

test("a cancelled timer never fires, and promises settle between timers", async () => {
  const clock = new VirtualClock()
  let later = false
  const timer = clock.setTimer(20, () => assert.fail("cancelled"))
  clock.setTimer(10, () => {
    void Promise.resolve().then(() => {
      later = true
      timer.cancel()
    })
  })
  await clock.advance(100)
  assert.ok(later)
})

test("the wall clock can jump back while the monotonic time goes on", async () => {
  const clock = new VirtualClock(1_000_000n)
  await clock.advance(1)
  clock.setWall(5n)
  await clock.advance(1)
  assert.equal(clock.nowMicros(), 1_005n)
  assert.equal(clock.monotonicMs(), 2)
})
