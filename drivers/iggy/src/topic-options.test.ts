import assert from "node:assert/strict"
import { test } from "node:test"
import { HeaderValue, InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { plainSpec } from "./session.test-support.ts"
import { lineageOf } from "./topic-lookup.ts"
import { topicOptions } from "./topic-options.ts"

function option(spec: Parameters<typeof topicOptions>[0], key: string): HeaderValue | undefined {
  return topicOptions(spec, "0.11").find(([known]) => known === key)?.[1]
}

test("every batch is in its file before it is confirmed; synced has the file synced, too", () => {
  for (const durability of ["synced", "written"] as const) {
    const spec = { ...plainSpec, durability }
    assert.equal(option(spec, "messages_required_to_save")?.value, 1)
    assert.equal(option(spec, "enforce_fsync")?.value, durability === "synced")
  }
})

// The kinds and bounds are those of iggy-wire.md: Topic options.
test("sizes and times have the kinds that the server takes, within its bounds", () => {
  const size = fc.bigInt({ min: 1n << 20n, max: 1n << 45n })
  fc.assert(
    fc.property(size, fc.integer({ min: 1, max: 10 ** 11 }), (maxBytes, expireAfterMs) => {
      const spec = { ...plainSpec, maxBytes, expireAfterMs }
      assert.ok(option(spec, "message_expiry")?.equals(HeaderValue.uint64(BigInt(expireAfterMs) * 1000n)))
      assert.ok(option(spec, "max_topic_size")?.equals(HeaderValue.uint64(maxBytes)))
      const segment = option(spec, "segment_size")?.value as bigint
      assert.equal(segment % 512n, 0n)
      assert.ok(segment >= 1n << 20n && segment <= 1n << 30n && segment <= maxBytes)
    }),
  )
})

test("a size below a segment is refused, with the least that there is", () => {
  assert.throws(
    () => topicOptions({ ...plainSpec, maxBytes: 1000n }, "0.11"),
    (error: Error) => error instanceof InvalidError && /1000 .*1048576/.test(error.message),
  )
})

test("native options win, and each has its kind", () => {
  const native = {
    segment_size: 1 << 21,
    messages_required_to_save: 500,
    preallocate_segments: true,
    message_expiry: "7 days",
  }
  const spec = { ...plainSpec, native }
  assert.ok(option(spec, "segment_size")?.equals(HeaderValue.uint64(1n << 21n)))
  assert.ok(option(spec, "messages_required_to_save")?.equals(HeaderValue.uint32(500)))
  assert.ok(option(spec, "preallocate_segments")?.equals(HeaderValue.bool(true)))
  assert.ok(option(spec, "message_expiry")?.equals(HeaderValue.string("7 days")))
  assert.throws(() => topicOptions({ ...plainSpec, native: { segment_size: {} } }, "0.11"), InvalidError)
})

test("wire 0.12 has words for durability in place of flags", () => {
  const options = new Map(topicOptions({ ...plainSpec, durability: "synced" }, "0.12"))
  assert.equal(options.get("durability")?.value, "persisted")
  assert.equal(options.get("consumer_offset_durability")?.value, "replicated")
  assert.equal(options.has("enforce_fsync"), false)
})

test("a lineage tells recreations and purges apart", () => {
  const all = [lineageOf(5n, undefined), lineageOf(6n, undefined), lineageOf(5n, 0), lineageOf(5n, 1)]
  assert.equal(new Set(all).size, 4)
})
