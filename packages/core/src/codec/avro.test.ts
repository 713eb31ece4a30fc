/** Avro against the examples of its specification (1.12.0, "Binary Encoding", "Schema Resolution"), and against bytes that mean harm. */
import assert from "node:assert/strict"
import { Buffer } from "node:buffer"
import { describe, test } from "node:test"
import { DecodeError, InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { Avro, type AvroSchema, avro } from "./avro.ts"
import { hexBytes, hexText } from "./plain-values.test-support.ts"

const testRecord = {
  type: "record",
  name: "test",
  fields: [
    { name: "a", type: "long" },
    { name: "b", type: "string" },
  ],
}
const list = { type: "record", name: "List", fields: [{ name: "next", type: ["null", "List"] }] }
const abc = { type: "enum", name: "Foo", symbols: ["A", "B", "C", "D"] }

const examples: readonly (readonly [AvroSchema, unknown, string])[] = [
  ["null", null, ""],
  ["boolean", true, "01"],
  ["long", 0n, "00"],
  ["long", -1n, "01"],
  ["long", 1n, "02"],
  ["long", -2n, "03"],
  ["long", -64n, "7f"],
  ["long", 64n, "8001"],
  ["long", 2n ** 63n - 1n, "feffffffffffffffff01"],
  ["long", -(2n ** 63n), "ffffffffffffffffff01"],
  ["int", -64, "7f"],
  ["double", 1.5, "000000000000f83f"],
  ["float", 1.5, "0000c03f"],
  ["bytes", Uint8Array.of(1, 2), "040102"],
  ["string", "foo", "06666f6f"],
  [testRecord, { a: 27n, b: "foo" }, "3606666f6f"],
  [abc, "D", "06"],
  [{ type: "array", items: "long" }, [3n, 27n], "04063600"],
  [["null", "string"], null, "00"],
  [["null", "string"], "a", "020261"],
  [["null", "long", "double"], 7n, "020e"],
  [["null", "bytes"], Uint8Array.of(9), "020209"],
  [{ type: "fixed", name: "Two", size: 2 }, Uint8Array.of(1, 2), "0102"],
  [{ type: "bytes", logicalType: "decimal", precision: 4 }, Uint8Array.of(5), "0205"],
  [{ type: "long", logicalType: "timestamp-micros" }, 1n, "02"],
]

describe("the examples of the specification", () => {
  for (const [schema, value, hex] of examples) {
    test(`${JSON.stringify(schema).slice(0, 60)}: ${hex}`, () => {
      const codec = avro(schema)
      assert.deepEqual(plain(codec.decode(hexBytes(hex))), value)
      assert.equal(hexText(codec.encode(value)), hex)
    })
  }

  test("blocks that tell their size, and more than one", () => {
    const codec = avro({ type: "array", items: "long" })
    assert.deepEqual(codec.decode(hexBytes("03 04 06 36 02 02 00")), [3n, 27n, 1n])
  })

  test("a union of kinds that JavaScript does not tell apart is wrapped", () => {
    const codec = avro(["int", "double"])
    assert.equal(hexText(codec.encode({ int: 5 })), "000a")
    assert.deepEqual(plain(codec.decode(hexBytes("000a"))), { int: 5 })
  })

  test("a schema may be text, or the name of a type, and may use others", () => {
    assert.equal(hexText(avro('{"type":"array","items":"int"}').encode([1])), "020200")
    assert.equal(hexText(avro('"string"').encode("a")), "0261")
    assert.equal(hexText(avro("string").encode("a")), "0261")
    const user = { type: "record", name: "shop.User", fields: [{ name: "t", type: "shop.test" }] }
    const references = [{ ...testRecord, namespace: "shop" }]
    assert.equal(hexText(avro(user, { references }).encode({ t: { a: 27n, b: "foo" } })), "3606666f6f")
  })
})

describe("schema resolution", () => {
  const written = {
    type: "record",
    name: "R",
    fields: [
      { name: "x", type: "string" },
      { name: "a", type: "int" },
      { name: "b", type: "string" },
    ],
  }
  const reader = {
    type: "record",
    name: "R",
    fields: [
      { name: "a", type: "long" },
      { name: "n", type: ["null", "string"], default: null },
      { name: "d", type: "long", default: 7 },
      { name: "b", type: "bytes" },
    ],
  }
  const expected = { a: 5n, n: null, d: 7n, b: new TextEncoder().encode("h\u00e9") }

  test("fields are found by name, widened, left out, and filled with defaults", () => {
    const payload = avro(written).encode({ x: "gone", a: 5, b: "h\u00e9" })
    assert.deepEqual(plain(avro(reader, { writer: written }).decode(payload)), expected)
    assert.deepEqual(plain(avro(reader).reads(avro(written))(payload)), expected)
    assert.throws(
      () => avro(reader, { writer: written }).decode(Buffer.concat([payload, Buffer.of(0)])),
      /1 bytes follow the value/,
    )
    assert.equal(avro<string>("string").reads(avro("bytes"))(Uint8Array.of(2, 65)), "A")
  })

  test("what cannot be read is told when the codec is made", () => {
    for (const [one, other] of [
      [reader, "string"],
      ["int", "long"],
      [testRecord, written],
      ["string", "int"],
    ] as const) {
      assert.throws(
        () => avro(one, { writer: other }),
        (error) => error instanceof InvalidError && /cannot read what the writer's schema writes/.test(error.message),
      )
    }
  })
})

describe("what is refused", () => {
  const misfits: readonly (readonly [AvroSchema, unknown, RegExp])[] = [
    ["long", 5, /5 at the top is no long \(a bigint of 64 bits\)/],
    ["long", 2n ** 63n, /bigint 9223372036854775808/],
    ["int", 1.5, /1\.5 at the top is no int/],
    ["int", 2 ** 31, /is no int/],
    ["string", "\ud800", /half a surrogate/],
    ["bytes", "text", /"text" at the top is no bytes/],
    [{ type: "fixed", name: "Two", size: 2 }, Uint8Array.of(1), /is no fixed/],
    [abc, "E", /"E" at the top is no enum Foo/],
    [testRecord, { a: 1n }, /nothing at b is no string/],
    [testRecord, { a: 1n, b: 5 }, /5 at b is no string/],
    [testRecord, { a: 1n, b: "x", c: 1 }, /the field "c" at the top is not in the record test/],
    [
      { type: "array", items: testRecord },
      [
        { a: 1n, b: "x" },
        { a: 1n, b: null },
      ],
      /null at 1\.b is no string/,
    ],
    [["null", "string"], 5, /is no/],
    ["string", new Date(), /Date/],
  ]
  for (const [index, [schema, value, message]] of misfits.entries()) {
    test(`a value that does not fit, ${index}: ${message.source}`, () => {
      assert.throws(
        () => avro(schema).encode(value),
        (error) => error instanceof InvalidError && message.test(error.message),
      )
    })
  }

  test("a cycle", () => {
    const cycle: { next?: unknown } = {}
    cycle.next = cycle
    assert.throws(() => avro(list).encode(cycle), /a cycle, at next/)
  })

  test("what is no schema", () => {
    for (const schema of ["nope", "{", { type: "record" }, null, 5, { type: "enum", name: "E", symbols: ["A", "A"] }]) {
      assert.throws(() => avro(schema as never), InvalidError)
    }
    assert.throws(() => avro("int", { reader: "int" } as never), /unknown option "reader"/)
  })

  const hostile: readonly (readonly [AvroSchema, string, RegExp])[] = [
    ["string", "", /end inside of a number, at byte 0/],
    ["string", "0861", /4 are wanted at byte 1/],
    ["string", "feffffffff7f", /are wanted at byte 6/],
    ["string", "ffffffffff7f", /-\d+ are wanted/],
    ["string", "02ff", /text at byte 1 is not UTF-8/],
    ["long", "ffffffffffffffffffffff01", /more than 10 bytes/],
    ["long", "0000", /1 bytes follow the value, from byte 1 on/],
    ["boolean", "02", /boolean at byte 0 is 2/],
    [abc, "08", /none is number 4/],
    [["null", "string"], "04", /none is number 2/],
    [["null", "string"], "01", /none is number -1/],
    [{ type: "array", items: "string" }, "feffffffffffff7f00", /end inside of|are wanted/],
    [{ type: "array", items: "null" }, "feffffffffffff7f00", /more than 100000 items without a byte/],
    [
      { type: "array", items: { type: "record", name: "E", fields: [] } },
      "ffffffffffffff7f00 00",
      /more than 100000 items/,
    ],
    [
      { type: "array", items: { type: "array", items: "null" } },
      // A hundred arrays of 50,000 nulls in 400 bytes.
      `c801${"a08d0600".repeat(100)}00`,
      /more than 100000 items/,
    ],
    [{ type: "map", values: "int" }, "02125f5f70726f746f5f5f0200", /__proto__/],
    [list, "02".repeat(100_000), /nested deeper than 1000 levels/],
  ]
  for (const [schema, hex, message] of hostile) {
    test(`${JSON.stringify(schema).slice(0, 50)} in ${hex.slice(0, 24)}`, () => {
      const started = process.hrtime.bigint()
      assert.throws(
        () => avro(schema).decode(hexBytes(hex)),
        (error) => error instanceof DecodeError && message.test(error.message),
      )
      // Whoever believes the counts needs hours.
      assert.ok(process.hrtime.bigint() - started < 60_000_000_000n)
    })
  }

  test("every beginning of a value, and any bytes: a DecodeError or a value", () => {
    const schema = {
      type: "record",
      name: "All",
      fields: [
        { name: "l", type: { type: "array", items: ["null", "long", "string", testRecord] } },
        { name: "m", type: { type: "map", values: "double" } },
        { name: "f", type: { type: "fixed", name: "F", size: 3 } },
      ],
    }
    const codec = avro(schema)
    const payload = codec.encode({ l: [null, 5n, "x"], m: { a: 1.5 }, f: new Uint8Array(3) })
    for (let end = 0; end < payload.length; end++)
      assert.throws(() => codec.decode(payload.subarray(0, end)), DecodeError)
    const check = (bytes: Uint8Array): void => {
      try {
        codec.decode(bytes)
      } catch (error) {
        assert.ok(error instanceof DecodeError, String(error))
      }
    }
    fc.assert(fc.property(fc.uint8Array({ maxLength: 50 }), check), { numRuns: 2000 })
    const damage = fc.tuple(fc.nat(payload.length - 1), fc.nat(255))
    fc.assert(
      fc.property(damage, ([at, byte]) => check(Uint8Array.from(payload, (old, index) => (index === at ? byte : old)))),
      { numRuns: 2000 },
    )
  })
})

test("no digit of a long is lost, wherever it stands", () => {
  const schema = {
    type: "record",
    name: "L",
    fields: [
      { name: "one", type: "long" },
      { name: "some", type: ["null", "long"] },
      { name: "many", type: { type: "array", items: "long" } },
    ],
  }
  const codec = avro<{ one: bigint; some: bigint | null; many: bigint[] }>(schema)
  const long = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
  fc.assert(
    fc.property(
      fc.record({ one: long, some: fc.option(long), many: fc.array(long) }, { noNullPrototype: true }),
      (value) => {
        assert.deepEqual(plain(codec.decode(codec.encode(value))), value)
      },
    ),
  )
})

test("what is read shares no memory with the payload", () => {
  const codec = new Avro<Uint8Array>("bytes")
  const payload = codec.encode(Uint8Array.of(1, 2))
  const bytes = codec.decode(payload)
  payload.fill(0)
  assert.deepStrictEqual(bytes, Uint8Array.of(1, 2))
})

/** Records are of classes of their own: their fields are what counts. */
function plain(value: unknown): unknown {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value
  if (Array.isArray(value)) return value.map(plain)
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, plain(field)]))
}
