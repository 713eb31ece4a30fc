import assert from "node:assert/strict"
import { test } from "node:test"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { newUlid } from "./ulid.ts"

test("the time of the specification's example gives its first ten characters", () => {
  // github.com/ulid/spec: `ulid(1469918176385) // 01ARYZ6S41…`
  const clock = new VirtualClock(1_469_918_176_385_000n)
  assert.match(newUlid(clock, seededRandom(1)), /^01ARYZ6S41[0-9A-HJKMNP-TV-Z]{16}$/)
})

test("no random bits and all of them give the smallest and the largest of a millisecond", () => {
  const clock = new VirtualClock(0n)
  assert.equal(newUlid(clock, { uint32: () => 0 }), "00000000000000000000000000")
  assert.equal(newUlid(clock, { uint32: () => 0xffff_ffff }), "0000000000ZZZZZZZZZZZZZZZZ")
})

test("later ones sort behind, and those of one time differ", () => {
  const clock = new VirtualClock()
  const random = seededRandom(7)
  const first = newUlid(clock, random)
  assert.notEqual(newUlid(clock, random), first)
  clock.setWall(clock.nowMicros() + 1000n)
  assert.ok(newUlid(clock, random) > first)
})
