import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { HandledRanges } from "./handled-ranges.ts"

/** What a set of offsets says: the plain way to know the same. */
class Model {
  readonly #handled = new Set<bigint>()
  readonly #start: bigint

  constructor(start: bigint) {
    this.#start = start
  }
  add(from: bigint, to: bigint): number {
    let fresh = 0
    for (let offset = from; offset < to; offset++) {
      if (offset < this.#start || this.#handled.has(offset)) continue
      this.#handled.add(offset)
      fresh++
    }
    return fresh
  }
  get prefix(): bigint {
    let next = this.#start
    while (this.#handled.has(next)) next++
    return next
  }
  open(end: bigint): number {
    let open = 0
    for (let offset = this.#start; offset < end; offset++) if (!this.#handled.has(offset)) open++
    return open
  }
}

describe("what is handled of a partition", () => {
  test("in order there is nothing but a prefix", () => {
    const ranges = new HandledRanges(5n)
    for (let offset = 5n; offset < 10n; offset++) assert.equal(ranges.add(offset, offset + 1n), 1)
    assert.equal(ranges.prefix, 10n)
    assert.equal(ranges.gaps, 0)
  })

  test("the prefix waits for the first message, and then goes over all that is handled behind it", () => {
    const ranges = new HandledRanges()
    ranges.add(2n, 3n)
    ranges.add(1n, 2n)
    ranges.add(5n, 6n)
    assert.equal(ranges.prefix, 0n)
    assert.equal(ranges.open(6n), 3)
    ranges.add(0n, 1n)
    assert.equal(ranges.prefix, 3n)
    assert.equal(ranges.gaps, 1)
  })

  test("whatever the order, it knows what a set of all offsets knows", () => {
    const offset = fc.bigInt({ min: 0n, max: 40n })
    const step = fc.record({ from: offset, length: fc.bigInt({ min: 0n, max: 8n }), through: fc.boolean() })
    fc.assert(
      fc.property(offset, fc.array(step, { maxLength: 40 }), (start, steps) => {
        const ranges = new HandledRanges(start)
        const model = new Model(start)
        let end = start
        for (const { from, length, through } of steps) {
          const to = from + length
          if (through) assert.equal(ranges.through(to), model.add(0n, to))
          else assert.equal(ranges.add(from, to), model.add(from, to))
          assert.equal(ranges.prefix, model.prefix)
          if (to > end) end = to
          assert.equal(ranges.open(end), model.open(end))
        }
      }),
    )
  })

  test("beginning anew forgets everything", () => {
    const ranges = new HandledRanges(0n)
    ranges.add(3n, 4n)
    ranges.reset(10n)
    assert.equal(ranges.prefix, 10n)
    assert.equal(ranges.open(12n), 2)
  })
})
