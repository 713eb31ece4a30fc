import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { DedupeWindow } from "./interval-set.ts"

describe("the dedupe window", () => {
  test("knows what was marked, and only that, as a set of offsets does; intervals are as few as can be", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.integer({ min: 0, max: 2 }), fc.bigInt({ min: 0n, max: 60n })), { maxLength: 200 }),
        (marks) => {
          const window = new DedupeWindow()
          const model = new Map<number, Set<bigint>>()
          for (const [partition, offset] of marks) {
            const known = model.get(partition) ?? new Set<bigint>()
            model.set(partition, known)
            assert.equal(window.markProcessed(partition, offset), !known.has(offset))
            known.add(offset)
          }
          for (let partition = 0; partition < 3; partition++) {
            const known = [...(model.get(partition) ?? [])].sort((a, b) => (a < b ? -1 : 1))
            for (let offset = 0n; offset <= 62n; offset++) {
              assert.equal(window.alreadyProcessed(partition, offset), known.includes(offset))
            }
            assert.deepEqual([window.min(partition), window.max(partition)], [known[0], known.at(-1)])
            const missing: { from: bigint; to: bigint }[] = []
            known.forEach((offset, i) => {
              const before = known[i - 1]
              if (before !== undefined && before + 1n < offset) missing.push({ from: before + 1n, to: offset })
            })
            assert.deepEqual(window.gaps(partition), missing)
          }
          assert.deepEqual(window.partitions, [...model.keys()].sort())
        },
      ),
    )
  })

  test("forgets the lowest beyond its bound, and never makes up a mark", () => {
    const window = new DedupeWindow(10)
    for (let offset = 0n; offset < 100n; offset += 2n) window.markProcessed(0, offset)
    assert.ok(window.gaps(0).length < 10)
    assert.equal(window.alreadyProcessed(0, 98n), true)
    for (let offset = 1n; offset < 100n; offset += 2n) assert.equal(window.alreadyProcessed(0, offset), false)
    assert.equal(window.alreadyProcessed(0, 0n), false)
  })

  test("a new history of a partition begins with nothing", () => {
    const window = new DedupeWindow()
    window.mark(0, 5n, "a")
    window.mark(1, 5n, "a")
    assert.deepEqual([window.has(0, 5n, "a"), window.has(0, 5n, "b")], [true, false])
    window.mark(0, 6n, "b")
    assert.deepEqual([window.has(0, 5n, "b"), window.has(0, 6n, "b"), window.has(1, 5n, "a")], [false, true, true])
  })

  test("refuses what is no partition or offset", () => {
    const window = new DedupeWindow()
    for (const [partition, offset] of [
      [-1, 0n],
      [0.5, 0n],
      [0, -1n],
      [0, 1],
    ] as [number, bigint][]) {
      assert.throws(() => window.markProcessed(partition, offset), InvalidError)
      assert.throws(() => window.alreadyProcessed(partition, offset), InvalidError)
    }
  })
})
