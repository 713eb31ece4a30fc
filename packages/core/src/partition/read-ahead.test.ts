import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { Holding, ReadAhead } from "./read-ahead.ts"

const limits = { prefetchBytes: 1000, prefetchRecords: 100, maxBytes: 400 }

function divided(partitions: number): { readonly ahead: ReadAhead; readonly holdings: Holding[] } {
  const ahead = new ReadAhead(limits)
  ahead.divide(partitions)
  return { ahead, holdings: Array.from({ length: partitions }, () => new Holding()) }
}

describe("the share of a partition", () => {
  test("one partition has all of it, and polls come when half is free", () => {
    const { ahead, holdings } = divided(1)
    const [one] = holdings as [Holding]
    assert.deepEqual(ahead.room, { maxBytes: 400, maxRecords: 100 })
    ahead.took(one, 500, 40)
    assert.ok(ahead.polls(one))
    ahead.took(one, 400, 40)
    assert.ok(!ahead.polls(one))
    assert.equal(ahead.gaveBack(one, 200, 20), false)
    assert.equal(ahead.gaveBack(one, 200, 20), true)
    assert.ok(ahead.polls(one))
    assert.deepEqual(ahead.room, { maxBytes: 400, maxRecords: 60 })
  })

  test("that is full closes the partition until it is half empty", () => {
    const { ahead, holdings } = divided(4)
    const [loud, quiet] = holdings as [Holding, Holding]
    ahead.took(loud, 260, 5)
    assert.ok(!ahead.polls(loud) && ahead.polls(quiet))
    assert.equal(ahead.gaveBack(loud, 100, 2), false)
    assert.ok(!ahead.polls(loud), "hysteresis: not before half")
    assert.equal(ahead.gaveBack(loud, 50, 1), true)
    assert.ok(ahead.polls(loud))
  })

  test("grows when fewer partitions are read", () => {
    const { ahead, holdings } = divided(4)
    const [loud] = holdings as [Holding]
    ahead.took(loud, 260, 5)
    assert.ok(!ahead.polls(loud))
    ahead.divide(1)
    assert.ok(ahead.polls(loud))
  })

  test("counts records as well as bytes", () => {
    const { ahead, holdings } = divided(4)
    const [small] = holdings as [Holding]
    ahead.took(small, 25, 25)
    assert.ok(!ahead.polls(small))
  })

  test("while the budget is short, only who holds nothing is polled, and for half a share", () => {
    const { ahead, holdings } = divided(2)
    const [loud, quiet] = holdings as [Holding, Holding]
    ahead.took(loud, 700, 60)
    assert.ok(ahead.tight)
    assert.ok(!ahead.polls(loud) && ahead.polls(quiet))
    assert.deepEqual(ahead.room, { maxBytes: 250, maxRecords: 25 })
    ahead.took(quiet, 10, 1)
    assert.ok(!ahead.polls(quiet))
    assert.equal(ahead.gaveBack(quiet, 10, 1), true)
  })

  test("a batch larger than everything is taken, and closes until it is handed out", () => {
    const { ahead, holdings } = divided(1)
    const [one] = holdings as [Holding]
    ahead.took(one, 5000, 1)
    assert.ok(!ahead.polls(one))
    assert.equal(ahead.gaveBack(one, 5000, 1), true)
    assert.ok(ahead.polls(one))
    assert.equal(ahead.room.maxBytes, 400)
  })

  test("there is always room for one record", () => {
    const tiny = new ReadAhead({ prefetchBytes: 1, prefetchRecords: 1, maxBytes: 1 })
    tiny.divide(100)
    assert.deepEqual(tiny.room, { maxBytes: 1, maxRecords: 1 })
    const holding = new Holding()
    tiny.took(holding, 1, 1)
    assert.ok(tiny.tight && tiny.polls(new Holding()))
    assert.deepEqual(tiny.room, { maxBytes: 1, maxRecords: 1 })
  })
})

describe("whatever is taken and given back", () => {
  const batch = fc.record({ bytes: fc.integer({ min: 1, max: 300 }), records: fc.integer({ min: 1, max: 30 }) })
  const step = fc.oneof(
    fc.record({ take: fc.nat({ max: 9 }), batch }),
    fc.record({ give: fc.nat({ max: 9 }) }),
    fc.record({ divide: fc.integer({ min: 1, max: 10 }) }),
  )

  test("the account is exact, what is held is bounded, and nobody who holds nothing is left out", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const { ahead, holdings } = divided(10)
        const held: { bytes: number; records: number }[][] = holdings.map(() => [])
        const polled = holdings.map((holding) => ahead.polls(holding))
        const look = (): void => {
          for (const [index, holding] of holdings.entries()) polled[index] = ahead.polls(holding)
        }
        for (const one of steps) {
          if ("divide" in one) {
            ahead.divide(one.divide)
            look()
          } else if ("take" in one) {
            // As a driver does: only of who is polled, within the room, but a first batch of any size.
            if (polled[one.take] !== true) continue
            ahead.took(holdings[one.take] as Holding, one.batch.bytes, one.batch.records)
            held[one.take]?.push(one.batch)
            look()
          } else {
            const back = held[one.give]?.shift()
            if (back !== undefined && ahead.gaveBack(holdings[one.give] as Holding, back.bytes, back.records)) look()
          }
          const sum = held.flat().reduce((total, { bytes }) => total + bytes, 0)
          assert.equal(ahead.bytes, sum)
          assert.ok(sum <= limits.prefetchBytes * 1.5 + 10 * 300)
          for (const [index, holding] of holdings.entries()) {
            if (holding.records === 0) assert.ok(polled[index], `partition ${index} holds nothing and is not polled`)
          }
          if (!ahead.tight) {
            for (const [index, holding] of holdings.entries()) assert.equal(polled[index], ahead.polls(holding))
          }
        }
        for (const [index, list] of held.entries()) {
          for (const { bytes, records } of list) ahead.gaveBack(holdings[index] as Holding, bytes, records)
        }
        assert.deepEqual([ahead.bytes, ahead.records], [0, 0])
        for (const holding of holdings) assert.deepEqual([holding.bytes, holding.records], [0, 0])
      }),
      { numRuns: 300 },
    )
  })
})
