import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { InvalidError } from "./error.ts"
import { batchId, checkMessageId, formatMessageId, maxBatchRecords, parseMessageId, splitId } from "./message-id.ts"

const ids = fc.record({
  millis: fc.integer({ min: 0, max: 2 ** 48 - 1 }),
  a: fc.integer({ min: 0, max: 0xfff }),
  b: fc.bigInt({ min: 0n, max: (1n << 42n) - 1n }),
})

test("a batch id is a UUIDv7 of its time", () => {
  fc.assert(
    fc.property(ids, ({ millis, a, b }) => {
      const text = formatMessageId(batchId(millis, a, b))
      assert.match(text, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
      assert.equal(Number.parseInt(text.slice(0, 8) + text.slice(9, 13), 16), millis)
    }),
  )
})

test("ids of a batch's records tell the batch and the index, and never reach into another batch", () => {
  fc.assert(
    fc.property(ids, fc.integer({ min: 0, max: maxBatchRecords - 1 }), ({ millis, a, b }, index) => {
      const batch = batchId(millis, a, b)
      assert.deepEqual(splitId(batch + BigInt(index)), { batch, index })
    }),
  )
})

test("later times give greater ids", () => {
  assert.ok(batchId(2, 0, 0n) > batchId(1, 0xfff, (1n << 42n) - 1n))
})

test("text and number are the same id", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 1n, max: (1n << 128n) - 1n }), (id) => parseMessageId(formatMessageId(id)) === id),
  )
})

test("what is no id is refused", () => {
  assert.throws(() => checkMessageId(0n), InvalidError)
  assert.throws(() => checkMessageId(1n << 128n), InvalidError)
  assert.throws(() => checkMessageId(-1n), InvalidError)
  assert.throws(() => checkMessageId(5 as unknown as bigint), InvalidError)
  assert.throws(() => parseMessageId("0190"), /is not a UUID/)
})
