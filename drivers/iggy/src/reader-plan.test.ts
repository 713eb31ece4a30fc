import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { shareOut } from "./reader-plan.ts"

const candidate = fc.record({
  available: fc.integer({ min: 1, max: 100_000 }),
  bytesPerRecord: fc.integer({ min: 1, max: 10_000_000 }),
})

const limits = fc.record({
  maxRecords: fc.integer({ min: 1, max: 50_000 }),
  maxBytes: fc.integer({ min: 1, max: 64_000_000 }),
})

test("somebody is always served, within both limits, and nobody beyond what there is", () => {
  fc.assert(
    fc.property(
      fc.array(candidate, { minLength: 1, maxLength: 80 }),
      limits,
      (candidates, { maxRecords, maxBytes }) => {
        const shares = shareOut(candidates, { maxRecords, maxBytes })
        assert.ok(shares.length >= 1 && shares.length <= 32)
        const records = shares.reduce((sum, share) => sum + share.records, 0)
        assert.ok(records <= maxRecords, `${records} of at most ${maxRecords} records`)
        const bytes = shares.reduce((sum, share) => sum + share.records * share.candidate.bytesPerRecord, 0)
        const alone = shares.length === 1 && shares[0]?.records === 1
        assert.ok(bytes <= maxBytes || alone, `${bytes} of at most ${maxBytes} bytes`)
        for (const share of shares) assert.ok(share.records >= 1 && share.records <= share.candidate.available)
      },
    ),
  )
})

test("a record above the limit comes alone", () => {
  const large = { available: 5, bytesPerRecord: 20_000 }
  assert.deepEqual(shareOut([large, large], { maxRecords: 100, maxBytes: 1_000 }), [{ candidate: large, records: 1 }])
})

test("partitions share alike, and what a short one leaves goes to those behind it", () => {
  const short = { available: 1, bytesPerRecord: 10 }
  const long = { available: 1_000, bytesPerRecord: 10 }
  const records = shareOut([short, long, long], { maxRecords: 31, maxBytes: 1_000_000 }).map((share) => share.records)
  assert.deepEqual(records, [1, 15, 15])
})
