/** BSON against the documents of bsonspec.org and of its corpus, and against bytes that mean harm. */
import assert from "node:assert/strict"
import { Buffer } from "node:buffer"
import { describe, test } from "node:test"
import { DecodeError, InvalidError } from "@millrace/contract"
import { Decimal128, ObjectId } from "bson"
import fc from "fast-check"
import { bson } from "./bson.ts"
import { hexBytes, hexText, plainValue } from "./plain-values.test-support.ts"

const codec = bson()
const read = (hex: string): unknown => codec.decode(hexBytes(hex))

const examples: readonly (readonly [object, string])[] = [
  [{}, "0500000000"],
  [{ hello: "world" }, "160000000268656c6c6f0006000000776f726c640000"],
  [
    { BSON: ["awesome", 5.05, 1986] },
    "310000000442534f4e002600000002300008000000617765736f6d65000131003333333333331440103200c20700000000",
  ],
  [{ i: -1 }, "0c000000106900ffffffff00"],
  [{ a: 1n }, "10000000126100010000000000000000"],
  [{ a: -(2n ** 63n) }, "10000000126100000000000000008000"],
  [{ d: Number.NaN }, "10000000016400000000000000f87f00"],
  [{ d: -0 }, "10000000016400000000000000008000"],
  [{ b: true }, "090000000862000100"],
  [{ a: null }, "080000000a610000"],
  [{ a: new Date(0) }, "10000000096100000000000000000000"],
  [{ a: new Date(1356351330501) }, "10000000096100c5d8d6cc3b01000000"],
  [{ a: "\u00e9".repeat(12) }, `2500000002610019000000${"c3a9".repeat(12)}0000`],
  [{ x: { a: 1 } }, "14000000037800".concat("0c00000010610001000000", "0000")],
]

describe("documents of the specification", () => {
  for (const [value, hex] of examples) {
    test(`${hex.slice(0, 40)} is read, and written`, () => {
      assert.deepStrictEqual(read(hex), value)
      assert.equal(hexText(codec.encode(value)), hex)
    })
  }

  test("binary of the generic subtype is bytes, and classes of the library stay what they are", () => {
    assert.deepStrictEqual(read("0f0000000578000200000000ffff00"), { x: Buffer.of(255, 255) })
    const value = { id: new ObjectId("56e1fc72e0c917e9c4714161"), price: Decimal128.fromString("0.1"), match: /a/i }
    const back = codec.decode(codec.encode(value)) as typeof value
    assert.deepEqual([String(back.id), String(back.price), back.match], ["56e1fc72e0c917e9c4714161", "0.1", /a/i])
    assert.ok(back.id instanceof ObjectId && back.price instanceof Decimal128)
  })
})

test("every plain document comes back", () => {
  // A key ends with a zero byte, so that none is in it.
  const values = plainValue({
    keys: fc.string({ unit: "binary", maxLength: 8 }).filter((key) => !key.includes("\0") && key !== "__proto__"),
    bytes: false,
    dates: true,
    bigints: { min: -(2n ** 63n), max: 2n ** 63n - 1n },
  })
  fc.assert(fc.property(values, (value) => assert.deepStrictEqual(codec.decode(codec.encode({ value })), { value })))
})

describe("what is refused", () => {
  test("what is no document", () => {
    for (const value of [null, undefined, 5, "x", [1], new Uint8Array(3), new Date(), new ObjectId(), () => 1]) {
      assert.throws(
        () => codec.encode(value),
        (error) => error instanceof InvalidError && /a document, an object/.test(error.message),
      )
    }
  })

  test("a key with a zero byte, in which it would end", () => {
    assert.throws(
      () => codec.encode({ "a\0b": 1 }),
      (error) => error instanceof InvalidError && /null bytes/.test(error.message),
    )
  })

  const refused: readonly (readonly [string, string, RegExp])[] = [
    ["nothing", "", /0 bytes are no document/],
    ["bytes behind the document", "050000000000", /says that it has 5 bytes, and there are 6/],
    ["a document that is cut off", "160000000268656c6c6f", /says that it has 22 bytes/],
    ["a size below all", "ffffffff00", /says that it has -1 bytes/],
    ["no end", "0500000001", /./],
    ["text that is not UTF-8", "0e00000002610002000000e90000", /utf-?8/i],
    ["a text longer than the document", "0e00000002610000000040 610000", /./],
    ["an inner document longer than the outer", "0d000000036100ff0000000000", /./],
    ["an unknown type", "0800000080610000", /./],
  ]
  for (const [name, hex, message] of refused) test(name, () => assert.throws(() => read(hex), message))

  test("lengths that are not there at once, and nesting costs no more than its bytes", () => {
    const levels = 200_000
    const bytes = new Uint8Array(levels * 7 + 5 + levels)
    const view = new DataView(bytes.buffer)
    for (let level = 0; level < levels; level++) {
      view.setInt32(level * 7, bytes.length - level * 8, true)
      bytes[level * 7 + 4] = 3
      bytes[level * 7 + 5] = 0x61
    }
    view.setInt32(levels * 7, 5, true)
    try {
      codec.decode(bytes)
    } catch (error) {
      assert.ok(error instanceof DecodeError)
    }
    const before = process.memoryUsage().rss
    assert.throws(() => read("100000000561 00ffffff7f00 0000000000".replaceAll(" ", "")))
    assert.ok(process.memoryUsage().rss - before < 100 << 20)
  })

  test("any bytes give a document or an Error", () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 60 }), (bytes) => {
        const framed = new Uint8Array(bytes.length + 5)
        framed.set(bytes, 4)
        new DataView(framed.buffer).setInt32(0, framed.length, true)
        try {
          codec.decode(framed)
        } catch (error) {
          assert.ok(error instanceof Error)
        }
      }),
      { numRuns: 3000 },
    )
  })
})

test("documents longer than the library's buffer are whole", () => {
  const value = { text: "x".repeat(18 << 20), after: 1 }
  assert.deepStrictEqual(codec.decode(codec.encode(value)), value)
  const atTheEnd = { after: 1, text: "x".repeat(19 << 20) }
  assert.deepStrictEqual(codec.decode(codec.encode(atTheEnd)), atTheEnd)
})

test("what is read shares no memory with the payload", () => {
  const payload = codec.encode({ bytes: Uint8Array.of(1, 2) })
  const { bytes } = codec.decode(payload) as { bytes: Uint8Array }
  payload.fill(0)
  assert.deepStrictEqual([...bytes], [1, 2])
})

test("DecodeError is what a document of the wrong size gives", () => {
  assert.throws(() => read("06000000"), DecodeError)
})
