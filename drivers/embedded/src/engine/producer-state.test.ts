import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { decodeRecent, encodeRecent, judge, type ProducerState, remember, rememberedBatches } from "./producer-state.ts"

const place = { base: 100n, timestampMicros: 5n }

describe("a producer's sequence", () => {
  it("wraps to 0 behind 2^31 − 1, in the middle of a batch and at its end", () => {
    const state: ProducerState = { epoch: 1, sequence: 2 ** 31 - 2, recent: [] }
    const inside = remember(state, { epoch: 1, sequence: 2 ** 31 - 2, count: 5 }, place)
    assert.equal(inside.sequence, 3)
    const exact = remember(state, { epoch: 1, sequence: 2 ** 31 - 2, count: 2 }, place)
    assert.equal(exact.sequence, 0)
    assert.deepEqual(judge(inside, { epoch: 1, sequence: 2 ** 31 - 2, count: 5 }).kind, "duplicate")
    assert.deepEqual(judge(inside, { epoch: 1, sequence: 3, count: 1 }).kind, "append")
  })

  it("begins at 0 for a producer that is not known, and in each epoch", () => {
    assert.deepEqual(judge(undefined, { epoch: 0, sequence: 0, count: 1 }), { kind: "append" })
    assert.deepEqual(judge(undefined, { epoch: 0, sequence: 3, count: 1 }), { kind: "gap", expected: 0 })
    const known: ProducerState = { epoch: 2, sequence: 9, recent: [] }
    assert.deepEqual(judge(known, { epoch: 3, sequence: 0, count: 1 }), { kind: "append" })
    assert.deepEqual(judge(known, { epoch: 3, sequence: 9, count: 1 }), { kind: "gap", expected: 0 })
    assert.deepEqual(judge(known, { epoch: 1, sequence: 9, count: 1 }), { kind: "fenced", epoch: 2 })
  })

  it("recognises exactly the last five batches, whatever their sizes and wherever they begin", () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 1000 }), { minLength: 1, maxLength: 20 })
    fc.assert(
      fc.property(sizes, fc.integer({ min: 0, max: 2 ** 31 - 1 }), (counts, start) => {
        let state: ProducerState = { epoch: 0, sequence: start, recent: [] }
        const sent: { sequence: number; count: number; base: bigint }[] = []
        let base = 0n
        for (const count of counts) {
          const batch = { epoch: 0, sequence: state.sequence, count }
          assert.equal(judge(state, batch).kind, "append")
          state = remember(state, batch, { base, timestampMicros: 0n })
          sent.push({ sequence: batch.sequence, count, base })
          base += BigInt(count)
        }
        sent.forEach((batch, i) => {
          const verdict = judge(state, { epoch: 0, sequence: batch.sequence, count: batch.count })
          const remembered = sent.length - i <= rememberedBatches
          assert.equal(verdict.kind, remembered ? "duplicate" : "gap")
          if (verdict.kind === "duplicate") assert.equal(verdict.of.base, batch.base)
        })
      }),
    )
  })

  it("is kept as bytes without loss", () => {
    const entry = fc.record(
      {
        sequence: fc.integer({ min: 0, max: 2 ** 31 - 1 }),
        count: fc.integer({ min: 1, max: 2 ** 20 }),
        base: fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }),
        timestampMicros: fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }),
      },
      { noNullPrototype: true },
    )
    fc.assert(
      fc.property(fc.array(entry, { maxLength: rememberedBatches }), (recent) => {
        assert.deepEqual(decodeRecent(encodeRecent(recent)), recent)
      }),
    )
  })
})
