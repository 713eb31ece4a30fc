/** Building pooled batches (seed 002, "Publishing with rented batches"; table 3.3 of the options): no buffer a record, all or nothing. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError, RecordTooLargeError } from "@millrace/contract"
import { SlabPool } from "@millrace/runtime"
import fc from "fast-check"
import type { PooledBatchBuilder } from "./pooled-batch-builder.ts"
import { builderOn, bytes, CountingPool, contents, limits, text } from "./pooled-rig.test-support.ts"

describe("building", () => {
  test("bytes, a write function, JSON and tombstones stand in the order of the calls", () => {
    const pool = new CountingPool()
    const builder = builderOn(pool)
    builder
      .add(bytes("one"))
      .add(4, (target) => target.set(bytes("four")))
      .addJson({ n: "ü€😀" })
      .add(null)
      .add(new Uint8Array(0))
    assert.equal(builder.count, 5)
    const batch = builder.build()
    assert.deepEqual(contents(batch), ["one", "four", '{"n":"ü€😀"}', null, ""])
    assert.equal(batch.payloadBytes, builder.payloadBytes)
  })

  test("a thousand records allocate no buffer for any of them", () => {
    const pool = new SlabPool()
    const payload = new Uint8Array(100).fill(7)
    const once = (): void => {
      using builder = builderOn(pool, 1024)
      for (let i = 0; i < 400; i++) builder.add(payload)
      for (let i = 0; i < 300; i++) builder.add(100, (target) => target.fill(i))
      for (let i = 0; i < 300; i++) builder.addJson({ index: i, name: "some text of a hundred bytes or so" })
      builder.build()[Symbol.dispose]()
    }
    once()
    const before = process.memoryUsage().arrayBuffers
    for (let round = 0; round < 20; round++) once()
    const grown = process.memoryUsage().arrayBuffers - before
    assert.ok(grown < 20 * 1000, `${grown} bytes of buffers for 20,000 records of about 100 bytes`)
  })

  test("the pool is asked for few slabs, which double, and which all go back", () => {
    const pool = new CountingPool()
    const builder = builderOn(pool, 1024)
    for (let i = 0; i < 1000; i++) builder.add(new Uint8Array(100))
    assert.ok(pool.taken <= 6, `${pool.taken} slabs for 100,000 bytes`)
    builder.build()[Symbol.dispose]()
    assert.equal(pool.out.size, 0)
  })

  test("a payload that is larger than any slab gets one of its own, and earlier views stay as they are", () => {
    const pool = new CountingPool()
    const wide = { ...limits, payloadBytes: 1 << 24 }
    const batch = builderOn(pool, 16, wide)
      .add(bytes("small"))
      .add(new Uint8Array(3 << 20).fill(1))
      .add(bytes("last"))
      .build()
    assert.equal(text(batch.payload(0)), "small")
    assert.equal(batch.payload(1)?.length, 3 << 20)
    assert.equal(text(batch.payload(2)), "last")
  })

  test("what is added reads back the same, whatever the sizes and ways", () => {
    const record = fc.oneof(
      fc.uint8Array({ maxLength: 900 }).map((payload) => ({ payload, way: "bytes" as const })),
      fc.uint8Array({ maxLength: 900 }).map((payload) => ({ payload, way: "write" as const })),
      fc
        .string({ unit: "grapheme", maxLength: 80 })
        .map((value) => ({ payload: bytes(JSON.stringify(value)), way: "json" as const })),
    )
    fc.assert(
      fc.property(fc.array(record, { maxLength: 30 }), fc.integer({ min: 1, max: 10_000 }), (records, hint) => {
        const pool = new CountingPool()
        const builder = builderOn(pool, hint)
        for (const { payload, way } of records) {
          if (way === "bytes") builder.add(payload)
          else if (way === "write") builder.add(payload.length, (target) => target.set(payload))
          else builder.addJson(JSON.parse(new TextDecoder().decode(payload)))
        }
        const batch = builder.build()
        for (const [index, { payload }] of records.entries()) assert.deepEqual(batch.payload(index), payload)
        batch[Symbol.dispose]()
        assert.equal(pool.out.size, 0)
      }),
      { numRuns: 200 },
    )
  })
})

describe("what leaves the batch as it was", () => {
  const cases: [string, (builder: PooledBatchBuilder) => unknown, RegExp][] = [
    [
      "a writer that throws",
      (builder) =>
        builder.add(500, (target) => {
          target.fill(9)
          throw new InvalidError("broken writer")
        }),
      /broken writer/,
    ],
    ["a writer that answers a promise", (builder) => builder.add(5, (async () => {}) as never), /before it returns/],
    ["a writer that uses the builder", (builder) => builder.add(5, () => builder.add(bytes("x"))), /inside a write/],
    ["a writer that builds", (builder) => builder.add(5, () => builder.build()), /inside a write/],
    ["a writer that disposes", (builder) => builder.add(5, () => builder[Symbol.dispose]()), /inside a write/],
    ["a payload above the limit", (builder) => builder.add(new Uint8Array(1001)), /1001 bytes; at most 1000/],
    ["a length above the limit", (builder) => builder.add(1001, () => {}), /1001 bytes; at most 1000/],
    ["JSON above the limit", (builder) => builder.addJson("x".repeat(999)), /1001 bytes; at most 1000/],
    ["JSON far above the limit", (builder) => builder.addJson("x".repeat(99_999)), /100001 bytes; at most 1000/],
    ["a value that JSON cannot hold", (builder) => builder.addJson(1n), /JSON/],
    ["a length that is none", (builder) => builder.add(-1, () => {}), /length is -1/],
    ["no writer", (builder) => builder.add(5, { key: "k" } as never), /a function/],
    ["text", (builder) => builder.add("text" as never), /Uint8Array/],
    ["an unknown option", (builder) => builder.add(bytes("x"), { kex: 1 } as never), /unknown option "kex"/],
    ["key and partition", (builder) => builder.add(bytes("x"), { key: "k", partition: 1 }), /exclude each other/],
    ["an empty key", (builder) => builder.add(bytes("x"), { key: "" }), /must not be empty/],
    ["a key with a lone surrogate", (builder) => builder.add(bytes("x"), { key: "\ud800" }), /lone surrogate/],
    ["a key that is neither", (builder) => builder.add(bytes("x"), { key: 7 as never }), /a key must be/],
    ["a reserved header", (builder) => builder.add(bytes("x"), { headers: { "millrace-ct": "1" } }), /reserved/],
  ]
  for (const [name, attempt, says] of cases) {
    test(name, () => {
      const pool = new CountingPool()
      const builder = builderOn(pool).add(bytes("before"))
      const { payloadBytes } = builder
      assert.throws(
        () => attempt(builder),
        (error) => (error instanceof InvalidError || error instanceof RecordTooLargeError) && says.test(error.message),
      )
      assert.deepEqual([builder.count, builder.payloadBytes], [1, payloadBytes])
      const batch = builder.add(bytes("after")).build()
      assert.deepEqual(contents(batch), ["before", "after"])
      batch[Symbol.dispose]()
      assert.equal(pool.out.size, 0)
    })
  }

  test("what is refused takes no memory, however often", () => {
    const pool = new CountingPool()
    const builder = builderOn(pool).add(bytes("before"))
    for (let i = 0; i < 1000; i++) {
      assert.throws(() => builder.add(new Uint8Array(900), { key: "" }), InvalidError)
      assert.throws(() => builder.add(900, () => assert.fail("broken writer")))
    }
    const batch = builder.add(bytes("after")).build()
    assert.deepEqual([pool.taken, pool.out.size], [1, 1])
    assert.deepEqual(contents(batch), ["before", "after"])
  })

  test("nothing of an earlier batch is in a target that the writer does not fill", () => {
    const pool = new CountingPool()
    builderOn(pool).add(bytes("a secret of another batch")).build()[Symbol.dispose]()
    const batch = builderOn(pool)
      .add(25, () => {})
      .build()
    assert.deepEqual(batch.payload(0), new Uint8Array(25))
  })
})
