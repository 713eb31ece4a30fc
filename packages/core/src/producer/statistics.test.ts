/** Counting by the rules of table 1.10 of the options, against a plain reckoning. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { VirtualClock } from "@millrace/runtime"
import fc from "fast-check"
import type { Call } from "./call.ts"
import { type LatencySummary, StatisticsCounter } from "./statistics.ts"

/** As much of a call as counting needs. */
function call(startedMs: number, loss: Call["loss"] = { calls: 0, records: 0, payloadBytes: 0 }): Call {
  return { count: 4, payloadBytes: 40, startedMs, loss } as Call
}

function latencyOf(durationsMs: readonly number[]): LatencySummary {
  const counter = new StatisticsCounter(new VirtualClock())
  for (const ms of durationsMs) counter.settled(call(0), false, ms)
  return counter.snapshot().latency
}

test("before the first call nothing is known of times, and the counts are 0", () => {
  const snapshot = new StatisticsCounter(new VirtualClock()).snapshot()
  assert.deepEqual(snapshot, {
    submittedRecords: 0,
    submittedPayloadBytes: 0,
    confirmedRecords: 0,
    confirmedPayloadBytes: 0,
    failedCalls: 0,
    retries: 0,
    latency: { samples: 0 },
  })
})

test("calls and records are counted, with the wall times of the first, the last and the last success", async () => {
  const clock = new VirtualClock(1_700_000_000_000_000n)
  const counter = new StatisticsCounter(clock)
  await clock.advance(5)
  counter.submitted(4, 40, clock.monotonicMs())
  await clock.advance(10)
  counter.submitted(1, 3, clock.monotonicMs())
  counter.settled(call(5), false, clock.monotonicMs())
  counter.resent()
  await clock.advance(100)
  counter.settled(call(15, { calls: 1, records: 4, payloadBytes: 40 }), true, clock.monotonicMs())
  assert.deepEqual(counter.snapshot(), {
    firstActivityMillis: 1_700_000_000_005,
    lastActivityMillis: 1_700_000_000_015,
    lastSuccessMillis: 1_700_000_000_015,
    submittedRecords: 5,
    submittedPayloadBytes: 43,
    confirmedRecords: 4,
    confirmedPayloadBytes: 40,
    failedCalls: 1,
    retries: 1,
    latency: { samples: 1, p50Micros: 16_384 },
  })
})

test("times are told by the present wall clock, however it has jumped since", async () => {
  const clock = new VirtualClock(1_700_000_000_000_000n)
  const counter = new StatisticsCounter(clock)
  counter.submitted(1, 1, clock.monotonicMs())
  await clock.advance(1000)
  clock.setWall(1_800_000_000_000_000n)
  const { firstActivityMillis, lastActivityMillis } = counter.snapshot()
  assert.equal(firstActivityMillis, 1_800_000_000_000 - 1000)
  assert.equal(lastActivityMillis, firstActivityMillis)
})

for (const [micros, bound] of [
  [0, 1],
  [1, 1],
  [1.5, 2],
  [2, 2],
  [3, 4],
  [1024, 1024],
  [1024.5, 2048],
  [1025, 2048],
  [2 ** 31, 2 ** 31],
  [2 ** 31 + 1, 2 ** 32],
  [2 ** 40, 2 ** 40],
  [2 ** 70, 2 ** 63],
] as const) {
  test(`${micros} µs are in the bucket up to ${bound}`, () => {
    assert.equal(latencyOf([micros / 1000]).p50Micros, bound)
  })
}

test("99 % is told from 100 samples on, 99.9 % from 1,000", () => {
  const of = (samples: number): LatencySummary => latencyOf(Array.from({ length: samples }, () => 1))
  assert.deepEqual(of(99), { samples: 99, p50Micros: 1024 })
  assert.deepEqual(of(100), { samples: 100, p50Micros: 1024, p99Micros: 1024 })
  assert.deepEqual(of(999), { samples: 999, p50Micros: 1024, p99Micros: 1024 })
  assert.deepEqual(of(1000), { samples: 1000, p50Micros: 1024, p99Micros: 1024, p999Micros: 1024 })
})

test("a percentile is the bucket's bound of the sample that so many are not above", () => {
  const duration = fc.double({ min: 0, max: 100_000, noNaN: true })
  fc.assert(
    fc.property(fc.array(duration, { minLength: 1, maxLength: 1500 }), (durations) => {
      const sorted = durations.map((ms) => boundOf(ms * 1000)).sort((a, b) => a - b)
      const at = (share: number): number => sorted[Math.ceil(sorted.length * share) - 1] as number
      const { samples, p50Micros, p99Micros, p999Micros } = latencyOf(durations)
      assert.equal(samples, durations.length)
      assert.equal(p50Micros, at(0.5))
      assert.equal(p99Micros, samples < 100 ? undefined : at(0.99))
      assert.equal(p999Micros, samples < 1000 ? undefined : at(0.999))
    }),
    { numRuns: 50 },
  )
})

/** The least power of two that is not below. */
function boundOf(micros: number): number {
  let bound = 1
  while (bound < micros) bound *= 2
  return bound
}
