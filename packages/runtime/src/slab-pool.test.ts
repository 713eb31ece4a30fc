import assert from "node:assert/strict"
import { test } from "node:test"
import { SlabPool } from "./slab-pool.ts"

test("slabs come in powers of two, alone in their memory, and come back", () => {
  const pool = new SlabPool()
  const slab = pool.take(5_000)
  assert.equal(slab.length, 8_192)
  assert.equal(slab.buffer.byteLength, 8_192)
  pool.give(slab)
  assert.equal(pool.freeBytes, 8_192)
  assert.equal(pool.take(4_097), slab)
  assert.equal(pool.freeBytes, 0)
  assert.notEqual(pool.take(4_097), slab)
})

test("what is very large is made to measure and not kept, and what is kept is bounded", () => {
  const pool = new SlabPool()
  const large = pool.take((8 << 20) + 1)
  assert.equal(large.length, (8 << 20) + 1)
  pool.give(large)
  assert.equal(pool.freeBytes, 0)
  for (const slab of Array.from({ length: 5 }, () => pool.take(8 << 20))) pool.give(slab)
  assert.equal(pool.freeBytes, 16 << 20)
})

test("shared slabs are seen by other threads", () => {
  assert.ok(new SlabPool("shared").take(1).buffer instanceof SharedArrayBuffer)
  assert.ok(new SlabPool().take(1).buffer instanceof ArrayBuffer)
})
