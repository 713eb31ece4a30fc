import assert from "node:assert/strict"
import { test } from "node:test"
import { keepOutstanding } from "./outstanding.ts"

test("never more calls are under way than asked for, and as many as asked for", async () => {
  let under = 0
  let most = 0
  let made = 0
  await keepOutstanding(100, 7, async () => {
    made++
    most = Math.max(most, ++under)
    await Promise.resolve()
    under--
  })
  assert.deepEqual({ made, most, under }, { made: 100, most: 7, under: 0 })
})

test("a failing call stops the load and is reported", async () => {
  let made = 0
  const load = keepOutstanding(100, 4, async () => {
    if (++made === 10) throw new Error("call 10")
    await Promise.resolve()
  })
  await assert.rejects(load, /call 10/)
  assert.ok(made < 100, `stopped after ${made} calls`)
})
