import assert from "node:assert/strict"
import { test } from "node:test"
import { median, quantile, spread } from "./quantile.ts"

test("a quantile is a value that was measured, by nearest rank", () => {
  const values = [5, 1, 4, 2, 3]
  assert.equal(quantile(values, 0.5), 3)
  assert.equal(quantile(values, 0.99), 5)
  assert.equal(quantile(values, 0), 1)
  assert.deepEqual(values, [5, 1, 4, 2, 3], "the argument keeps its order")
})

test("p99 of a hundred values leaves one above it", () => {
  const values = Array.from({ length: 100 }, (_, index) => index + 1)
  assert.equal(quantile(values, 0.99), 99)
})

test("the median of an even number of values lies between the middle two", () => {
  assert.equal(median([10, 1, 2, 3]), 2.5)
  assert.equal(median([7]), 7)
})

test("no values make no figure", () => {
  assert.throws(() => quantile([], 0.5), RangeError)
  assert.throws(() => median([]), RangeError)
  assert.throws(() => spread([]), RangeError)
})
