import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { DelayTable } from "./delays.ts"
import type { Flight } from "./flights.ts"
import { PartitionWork } from "./partition-work.ts"
import type { Snapshot } from "./snapshot.ts"

const flight = (origin: string, delay: number): Flight => ({ date: "", delay, distance: 0, origin, destination: "X" })

/** Each number: how far a worker comes beyond the last snapshot before it dies, and how many offsets back the next one is delivered from. */
const lives = fc.array(
  fc.record({ reads: fc.nat({ max: 30 }), saves: fc.nat({ max: 30 }), back: fc.nat({ max: 50 }) }),
  { maxLength: 6 },
)

test("however often workers die and flights repeat, each flight counts once", () => {
  const flights = Array.from({ length: 100 }, (_, index) => flight("ABC"[index % 3] as string, (index * 7) % 50))
  const expected = new DelayTable()
  for (const { origin, delay } of flights) expected.add(origin, delay)
  fc.assert(
    fc.property(lives, (list) => {
      let stored: Snapshot | undefined
      for (const { reads, saves, back } of [...list, { reads: 1_000, saves: 1, back: 1_000 }]) {
        const work = new PartitionWork(0, stored)
        const start = Math.max(0, Number(stored?.upTo ?? -1n) + 1 - back)
        for (let offset = start; offset < Math.min(flights.length, start + reads); offset++) {
          work.count(BigInt(offset), flights[offset] as Flight)
          if (work.unsaved >= Math.max(1, saves)) {
            const { partition, upTo, table } = work.snapshot()
            stored = { partition, upTo, table: new DelayTable(table.entries()) }
          }
        }
      }
      assert.equal(stored?.upTo, 99n)
      assert.deepEqual(stored.table.differences(expected), [])
    }),
  )
})

test("flights that are missing are an error, not a wrong result", () => {
  const work = new PartitionWork(2, undefined)
  assert.equal(work.count(0n, flight("A", 1)), "counted")
  assert.equal(work.count(0n, flight("A", 1)), "repeated")
  assert.throws(() => work.count(2n, flight("A", 1)), /partition 2: .*offset 2 follows the one at 0.*missing/)
})
