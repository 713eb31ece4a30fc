import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { DelayTable } from "./delays.ts"
import { decodeFlight, readFlights } from "./flights.ts"

const departure = fc.tuple(fc.constantFrom("ATL", "DFW", "LAX"), fc.integer({ min: -90, max: 600 }))
const departures = fc.array(departure, { maxLength: 200 })

function tableOf(list: readonly (readonly [string, number])[]): DelayTable {
  const table = new DelayTable()
  for (const [airport, delay] of list) table.add(airport, delay)
  return table
}

test("count, sum, least, greatest and late are those of the delays", () => {
  fc.assert(
    fc.property(departures, (list) => {
      for (const [airport, delays] of tableOf(list).entries()) {
        const own = list.filter(([name]) => name === airport).map(([, delay]) => delay)
        assert.deepEqual(delays, {
          count: own.length,
          sum: own.reduce((a, b) => a + b, 0),
          least: Math.min(...own),
          greatest: Math.max(...own),
          late: own.filter((delay) => delay >= 15).length,
        })
      }
    }),
  )
})

test("parts, added in any order, make the same table", () => {
  fc.assert(
    fc.property(departures, departures, (first, second) => {
      const joined = tableOf(second)
      joined.addAll(tableOf(first))
      assert.deepEqual(joined.differences(tableOf([...first, ...second])), [])
    }),
  )
})

test("a departure too many, too few or with another delay is a difference", () => {
  fc.assert(
    fc.property(departures, departure, (list, [airport, delay]) => {
      const expected = tableOf(list)
      const more = tableOf([...list, [airport, delay]])
      assert.notDeepEqual(more.differences(expected), [])
      assert.notDeepEqual(expected.differences(more), [])
      const other = tableOf([...list, [airport, delay + 1]])
      assert.notDeepEqual(other.differences(more), [])
    }),
  )
  assert.deepEqual(
    tableOf([["ATL", 20]]).differences(
      tableOf([
        ["ATL", 20],
        ["ATL", 5],
      ]),
    ),
    ["ATL: count is 1, but in the file 2", "ATL: sum is 20, but in the file 25", "ATL: least is 20, but in the file 5"],
  )
})

test("the busiest come first, equal ones by name", () => {
  const table = tableOf([
    ["LAX", 1],
    ["ATL", 1],
    ["DFW", 1],
    ["DFW", 1],
  ])
  assert.deepEqual(
    table.busiest(2).map(([airport]) => airport),
    ["DFW", "ATL"],
  )
})

test("the file has 20,000 flights from 220 airports", async () => {
  const flights = await readFlights()
  assert.equal(flights.length, 20_000)
  assert.equal(new Set(flights.map(({ origin }) => origin)).size, 220)
})

test("what is not a flight is refused, naming the field", () => {
  const flight = { date: "2001/01/01 00:47", delay: 66, distance: 1750, origin: "DTW", destination: "LAS" }
  assert.deepEqual(decodeFlight({ ...flight, extra: 1 }), flight)
  assert.throws(() => decodeFlight({ ...flight, delay: 1.5 }), /"delay".*1\.5/)
  assert.throws(() => decodeFlight({ ...flight, origin: "" }), /"origin"/)
  assert.throws(() => decodeFlight(null), /"date"/)
})
