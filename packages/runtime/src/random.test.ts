import assert from "node:assert/strict"
import { test } from "node:test"
import { backoffMs } from "./backoff.ts"
import { seededRandom, systemRandom } from "./random.ts"

test("a seed gives the same numbers again", () => {
  const draw = (seed: number): number[] => {
    const random = seededRandom(seed)
    return Array.from({ length: 5 }, () => random.uint32())
  }
  assert.deepEqual(draw(7), draw(7))
  assert.notDeepEqual(draw(7), draw(8))
})

test("the system's randomness does not repeat over its blocks", () => {
  const drawn = new Set(Array.from({ length: 2000 }, () => systemRandom.uint32()))
  assert.ok(drawn.size > 1990)
})

test("back-off doubles from its base and stops at its bound", () => {
  assert.deepEqual(
    [0, 1, 2, 3].map((retry) => backoffMs(retry, 250, 30_000)),
    [250, 500, 1000, 2000],
  )
  assert.equal(backoffMs(50, 250, 30_000), 30_000)
})
