import assert from "node:assert/strict"
import { test } from "node:test"
import { seededRandom } from "@millrace/runtime"
import fc from "fast-check"
import { ReconnectPace } from "./reconnect-pace.ts"

/** Attempts in the first minute of an outage, as nats.js makes them: each server not before its own time, the servers in turn. */
function attemptsInAMinute(servers: number, seed: number): number {
  const pace = new ReconnectPace(servers, seededRandom(seed))
  const lastMs = new Array<number>(servers).fill(Number.NEGATIVE_INFINITY)
  let attempts = 0
  for (let nowMs = 0; nowMs < 60_000; nowMs++) {
    for (let server = 0; server < servers; server++) {
      if (nowMs - (lastMs[server] as number) < pace.delayMs()) continue
      lastMs[server] = nowMs
      attempts++
      pace.attempted()
    }
  }
  return attempts
}

test("A-25: at most 20 attempts in a minute of outage, over one server or three, and a first one at once", () => {
  fc.assert(
    fc.property(fc.constantFrom(1, 3), fc.integer(), (servers, seed) => {
      const attempts = attemptsInAMinute(servers, seed)
      assert.ok(attempts >= 10 && attempts <= 20, `${attempts} attempts over ${servers} servers`)
    }),
    { numRuns: 12 },
  )
})

test("the wait stays the same until another attempt is made, and begins anew after a success", () => {
  const pace = new ReconnectPace(1, seededRandom(1))
  for (let attempt = 0; attempt < 8; attempt++) pace.attempted()
  assert.equal(pace.delayMs(), pace.delayMs())
  assert.ok(pace.delayMs() > 4_000)
  pace.restored()
  assert.ok(pace.delayMs() < 300)
})
