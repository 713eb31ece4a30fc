import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import {
  closeBelow,
  closePlace,
  emptyMirror,
  isOpen,
  type Lease,
  lastOpen,
  openAt,
  openPlace,
  shorten,
} from "./queue-lease.ts"

const first = 1000n

function leaseOf(count: number): Lease {
  return {
    id: 1,
    partition: 0,
    first,
    count,
    open: count,
    done: undefined,
    deliveries: 1,
    waitMs: 1,
    holder: 1,
    delivery: 1,
  }
}

const openOffsets = (lease: Lease): bigint[] =>
  Array.from({ length: lease.count }, (_, place) => place)
    .filter((place) => isOpen(lease, place))
    .map((place) => lease.first + BigInt(place))

const taken = fc
  .integer({ min: 1, max: 70 })
  .chain((count) => fc.record({ count: fc.constant(count), places: fc.uniqueArray(fc.nat({ max: count - 1 })) }))

describe("A lease", () => {
  it("has what was not taken, whatever it is moved to or shortened", () => {
    fc.assert(
      fc.property(taken, ({ count, places }) => {
        const lease = leaseOf(count)
        const mirror = emptyMirror(lease, { waitMs: 5, holder: undefined, delivery: 0 })
        for (const place of places) {
          closePlace(lease, place)
          openAt(mirror, place)
        }
        const moved = [...places].sort((a, b) => a - b).map((place) => first + BigInt(place))
        const left = openOffsets(leaseOf(count)).filter((offset) => !moved.includes(offset))
        assert.deepEqual(openOffsets(lease), left)
        assert.deepEqual(openOffsets(mirror), moved)
        for (const part of [lease, mirror]) {
          if (part.open === 0) {
            assert.equal(lastOpen(part), -1)
            continue
          }
          const before = openOffsets(part)
          shorten(part)
          assert.deepEqual(openOffsets(part), before)
          assert.equal(part.open, before.length)
          assert.equal(part.first, before[0])
          assert.equal(part.done === undefined, part.open === part.count)
          assert.equal(openPlace(part, part.first - 1n), -1)
          assert.equal(openPlace(part, part.first + BigInt(part.count)), -1)
          assert.equal(openPlace(part, part.first), 0)
        }
      }),
    )
  })

  it("loses what lies below an offset", () => {
    fc.assert(
      fc.property(taken, fc.integer({ min: -5, max: 80 }), ({ count, places }, at) => {
        const lease = leaseOf(count)
        for (const place of places) closePlace(lease, place)
        const before = openOffsets(lease)
        const bound = first + BigInt(at)
        const lost = closeBelow(lease, bound)
        const left = before.filter((offset) => offset >= bound)
        assert.equal(lost, before.length - left.length)
        assert.equal(lease.open, left.length)
        if (left.length > 0) assert.deepEqual(openOffsets(lease), left)
      }),
    )
  })
})
