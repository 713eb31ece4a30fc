import assert from "node:assert/strict"
import { test } from "node:test"
import { readStatisticsSettings } from "./statistics-settings.ts"

/** Table 1.10: 10000 by default; 0 turns off; clamped to 1000..60000; what cannot be parsed is the default. */
const intervals: readonly (readonly [string | undefined, number | undefined])[] = [
  [undefined, 10_000],
  ["0", undefined],
  ["00", undefined],
  ["1", 1000],
  ["999", 1000],
  ["1000", 1000],
  ["25000", 25_000],
  ["60000", 60_000],
  ["60001", 60_000],
  ["99999999999999999999999", 60_000],
  ["", 10_000],
  ["-1", 10_000],
  ["1.5", 10_000],
  ["1e4", 10_000],
  ["10s", 10_000],
  ["ten", 10_000],
]

for (const [text, interval] of intervals) {
  test(`an interval of ${JSON.stringify(text)} is ${interval}`, () => {
    assert.equal(readStatisticsSettings({ intervalMs: text, maxProducers: undefined })?.intervalMs, interval)
  })
}

for (const [text, most] of [
  [undefined, 32],
  ["1", 1],
  ["31", 31],
  ["33", 32],
  ["0", 1],
  ["many", 32],
] as const) {
  test(`${JSON.stringify(text)} producers are ${most}`, () => {
    assert.equal(readStatisticsSettings({ intervalMs: undefined, maxProducers: text })?.maxProducers, most)
  })
}
