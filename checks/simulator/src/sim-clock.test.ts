import assert from "node:assert/strict"
import { test } from "node:test"
import { Chance } from "./chance.ts"
import { SimClock } from "./sim-clock.ts"

test("timers fire in the order of their time, then of their setting, and cancelled ones do not", async () => {
  const clock = new SimClock()
  const chance = new Chance(1)
  const fired: (readonly [number, number])[] = []
  for (let i = 0; i < 500; i++) {
    const due = chance.below(50)
    const timer = clock.setTimer(due, () => {
      assert.equal(clock.monotonicMs(), due)
      fired.push([due, i])
    })
    if (chance.happens(0.3)) timer.cancel()
  }
  const waiting = clock.timers
  assert.ok(await clock.runUntil(() => clock.timers === 0, 1000))
  assert.equal(fired.length, waiting)
  assert.deepEqual(
    fired,
    [...fired].sort((a, b) => a[0] - b[0] || a[1] - b[1]),
  )
})

test("it goes no further than told, and lets promises settle between timers", async () => {
  const clock = new SimClock()
  const order: string[] = []
  clock.setTimer(10, () => void Promise.resolve().then(() => order.push("settled")))
  clock.setTimer(10, () => order.push("second"))
  clock.setTimer(100, () => order.push("late"))
  await clock.advance(50)
  assert.deepEqual(order, ["settled", "second"])
  assert.equal(clock.monotonicMs(), 50)
  assert.equal(await clock.runUntil(() => false, 20), false)
  assert.deepEqual(order, ["settled", "second"])
})

test("the wall clock jumps without the monotonic one", async () => {
  const clock = new SimClock(5_000_000n)
  clock.jumpWall(-2000)
  await clock.advance(500)
  assert.equal(clock.nowMicros(), 3_500_000n)
  assert.equal(clock.monotonicMs(), 500)
})
