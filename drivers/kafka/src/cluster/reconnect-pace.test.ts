import assert from "node:assert/strict"
import { test } from "node:test"
import { seededRandom } from "@millrace/runtime"
import fc from "fast-check"
import { ReconnectPace } from "./reconnect-pace.ts"

/** The times of attempts that all fail, up to a limit, beginning with a loss at 0. */
function attempts(pace: ReconnectPace, untilMs: number): number[] {
  const times: number[] = []
  for (let nowMs = pace.waitMs(0); nowMs < untilMs; nowMs += pace.waitMs(nowMs)) {
    times.push(nowMs)
    pace.failed(nowMs)
  }
  return times
}

test("a server that is gone for a minute sees at most 20 attempts, whatever the chance", () => {
  fc.assert(
    fc.property(fc.integer(), fc.nat({ max: 20_000 }), (seed, upMs) => {
      const pace = new ReconnectPace(seededRandom(seed))
      pace.connected(-upMs)
      pace.lost(0)
      const times = attempts(pace, 60_000)
      assert.ok(times.length <= 20 && times.length >= 8, `${times.length} attempts`)
    }),
  )
})

test("after a connection that held the first attempt comes at once", () => {
  const pace = new ReconnectPace(seededRandom(1))
  pace.connected(0)
  pace.lost(10_000)
  assert.equal(pace.waitMs(10_000), 0)
})

test("a server that takes connections and drops them at once is not stormed", () => {
  const pace = new ReconnectPace(seededRandom(1))
  let count = 0
  for (let nowMs = 0; nowMs < 60_000; nowMs += pace.waitMs(nowMs)) {
    count++
    pace.connected(nowMs)
    pace.lost(nowMs)
    assert.ok(pace.waitMs(nowMs) > 0)
  }
  assert.ok(count <= 20, `${count} attempts`)
})
