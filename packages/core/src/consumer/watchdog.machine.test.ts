import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { WatchdogMachine } from "./watchdog.machine.ts"

const patienceMs = 5000
const key = {}

/** Looks at one partition every interval, until `ms` have passed; answers what was told, with its time. */
function watch(
  machine: WatchdogMachine,
  from: number,
  options: { readonly ms: number; readonly wanted?: boolean; position: bigint; end: bigint | undefined },
): { atMs: number; forMs: number }[] {
  const told: { atMs: number; forMs: number }[] = []
  for (let atMs = from; atMs <= from + options.ms; atMs += machine.intervalMs) {
    const { position, end, wanted = true } = options
    for (const { forMs } of machine.look({ atMs, wanted, partitions: [{ key, position, end }] }))
      told.push({ atMs, forMs })
  }
  return told
}

describe("a partition with records behind its position", () => {
  test("is told of after the patience, and again each time that has doubled", () => {
    const told = watch(new WatchdogMachine(patienceMs), 0, { ms: 41_000, position: 3n, end: 9n })
    assert.deepEqual(
      told.map(({ atMs }) => atMs),
      [5000, 10_000, 20_000, 40_000],
    )
  })

  test("is not accused while its position moves", () => {
    const machine = new WatchdogMachine(patienceMs)
    for (let step = 0; step < 100; step++) {
      const partitions = [{ key, position: BigInt(step), end: 1000n }]
      assert.deepEqual(machine.look({ atMs: step * 2500, wanted: true, partitions }), [])
    }
  })

  test("is not accused for time in which nobody wanted anything", () => {
    const machine = new WatchdogMachine(patienceMs)
    assert.deepEqual(watch(machine, 0, { ms: 60_000, wanted: false, position: 0n, end: 9n }), [])
    assert.deepEqual(watch(machine, 60_000, { ms: 4900, position: 0n, end: 9n }), [])
  })

  test("is not accused for a gap in which nobody looked: the process was stopped", () => {
    const machine = new WatchdogMachine(patienceMs)
    const partitions = [{ key, position: 0n, end: 9n }]
    machine.look({ atMs: 0, wanted: true, partitions })
    machine.look({ atMs: 2500, wanted: true, partitions })
    const gap = machine.look({ atMs: 3_600_000, wanted: true, partitions })
    assert.deepEqual(
      gap.map(({ forMs }) => forMs),
      [7500],
      "of an hour no more than two intervals count",
    )
  })

  test("keeps the end that was seen last when the backend does not answer", () => {
    const machine = new WatchdogMachine(patienceMs)
    machine.look({ atMs: 0, wanted: true, partitions: [{ key, position: 0n, end: 9n }] })
    const told = watch(machine, 2500, { ms: 5000, position: 0n, end: undefined })
    assert.equal(told.length, 1)
  })

  test("begins anew under another claim", () => {
    const machine = new WatchdogMachine(patienceMs)
    machine.look({ atMs: 0, wanted: true, partitions: [{ key, position: 0n, end: 9n }] })
    machine.look({ atMs: 2500, wanted: true, partitions: [{ key, position: 0n, end: 9n }] })
    const other = [{ key: {}, position: 0n, end: 9n }]
    assert.deepEqual(machine.look({ atMs: 5000, wanted: true, partitions: other }), [])
  })
})

test("looks become rare while all is quiet, and frequent again when something comes", () => {
  const machine = new WatchdogMachine(patienceMs)
  watch(machine, 0, { ms: 100_000, position: 5n, end: 5n })
  assert.equal(machine.intervalMs, 10_000)
  machine.look({ atMs: 200_000, wanted: true, partitions: [{ key, position: 6n, end: 6n }] })
  assert.equal(machine.intervalMs, 2500)
})

test("whatever is seen: nobody is accused before it was behind and unmoved for the patience, and then by the second look", () => {
  const look = fc.record({ moves: fc.boolean(), wanted: fc.boolean(), behind: fc.boolean(), late: fc.nat(3000) })
  fc.assert(
    fc.property(fc.array(look, { maxLength: 60 }), (looks) => {
      const machine = new WatchdogMachine(patienceMs)
      let atMs = 0
      let position = 0n
      /** Since when it has been behind and unmoved, whether or not somebody wanted it. */
      let since: number | undefined
      for (const { moves, wanted, behind, late } of looks) {
        if (moves) position++
        const end = behind ? position + 1n : position
        const told = machine.look({ atMs, wanted, partitions: [{ key, position, end }] })
        if (moves || !behind) since = undefined
        if (behind) since ??= atMs
        if (told.length > 0) {
          assert.ok(since !== undefined && atMs - since >= patienceMs, `accused after ${atMs - (since ?? atMs)} ms`)
          assert.ok(wanted && behind)
        }
        atMs += machine.intervalMs + late
      }
    }),
  )
})
