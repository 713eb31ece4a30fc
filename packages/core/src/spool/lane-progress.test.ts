import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { LaneProgress } from "./lane-progress.ts"

test("the mark is the first record that is not done, as far as it was read together; room comes back in full", () => {
  const plan = fc.record({
    accepts: fc.array(fc.record({ count: fc.integer({ min: 1, max: 9 }), bytes: fc.nat({ max: 40_000 }) }), {
      minLength: 1,
      maxLength: 12,
    }),
    seed: fc.infiniteStream(fc.nat()),
  })
  fc.assert(
    fc.property(plan, ({ accepts, seed }) => {
      const next = (below: number): number => (seed.next().value as number) % below
      const progress = new LaneProgress(100n)
      const stretches: bigint[] = [100n]
      let accepted = 0
      let bytes = 0
      for (const [i, accept] of accepts.entries()) {
        progress.accepted(accept.count, accept.bytes, BigInt(i))
        accepted += accept.count
        bytes += accept.bytes
      }
      assert.equal(progress.end, 100n + BigInt(accepted))
      assert.equal(progress.oldestMicros, 0n)
      while ((stretches.at(-1) as bigint) < progress.end) {
        const left = Number(progress.end - (stretches.at(-1) as bigint))
        const end = (stretches.at(-1) as bigint) + BigInt(1 + next(left))
        progress.read(end, 10, 0)
        stretches.push(end)
      }
      // Ascending, so that the first is the least.
      const open = Array.from({ length: accepted }, (_, i) => 100n + BigInt(i))
      let freed = 0
      while (open.length > 0) {
        const [offset] = open.splice(next(open.length), 1)
        progress.done([{ first: offset as bigint, length: 1 }])
        freed += progress.advance() ?? 0
        const first = open[0] ?? progress.end
        const mark = stretches.filter((end) => end <= first).at(-1)
        assert.equal(progress.low, mark)
        assert.equal(progress.waiting, open.length)
      }
      assert.equal(freed, bytes)
      assert.deepEqual([progress.bytes, progress.readBytes, progress.oldestMicros], [0, 0, undefined])
    }),
  )
})

test("a full spool of small sends is held in few pieces", () => {
  const progress = new LaneProgress(0n)
  for (let i = 0; i < 10_000; i++) progress.accepted(1, 132, BigInt(i))
  progress.read(5_000n, 0, 0)
  progress.done([{ first: 0n, length: 5_000 }])
  const freed = progress.advance() ?? 0
  assert.ok(freed <= 5_000 * 132 && freed > 5_000 * 132 - 2 * (1 << 16), `${freed} bytes`)
  assert.ok((progress.oldestMicros ?? 0n) <= 5_000n)
})
