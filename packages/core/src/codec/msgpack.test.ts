/** MessagePack against its specification (github.com/msgpack/msgpack, spec.md), and against bytes that mean harm. */
import assert from "node:assert/strict"
import { Buffer } from "node:buffer"
import { describe, test } from "node:test"
import { DecodeError } from "@millrace/contract"
import fc from "fast-check"
import { msgpack } from "./msgpack.ts"
import { hexBytes, hexText, plainValue } from "./plain-values.test-support.ts"

const codec = msgpack()
const maps = msgpack((value) => value, { maps: "map" })
const read = (hex: string): unknown => codec.decode(hexBytes(hex))

/** Each format of the specification; what is written is what is read. */
const examples: readonly (readonly [unknown, string])[] = [
  [null, "c0"],
  [false, "c2"],
  [true, "c3"],
  [0, "00"],
  [127, "7f"],
  [128, "cc80"],
  [255, "ccff"],
  [256, "cd0100"],
  [65535, "cdffff"],
  [65536, "ce00010000"],
  [4294967295, "ceffffffff"],
  [-1, "ff"],
  [-32, "e0"],
  [-33, "d0df"],
  [-128, "d080"],
  [-129, "d1ff7f"],
  [-32768, "d18000"],
  [-32769, "d2ffff7fff"],
  [-2147483648, "d280000000"],
  [18446744073709551615n, "cfffffffffffffffff"],
  [-9223372036854775808n, "d38000000000000000"],
  [1.5, "cb3ff8000000000000"],
  [-0.1, "cbbfb999999999999a"],
  ["", "a0"],
  ["a", "a161"],
  ["\u6c34", "a3e6b0b4"],
  ["x".repeat(31), `bf${"78".repeat(31)}`],
  ["x".repeat(32), `d920${"78".repeat(32)}`],
  ["x".repeat(256), `da0100${"78".repeat(256)}`],
  ["x".repeat(65536), `db00010000${"78".repeat(65536)}`],
  [new Uint8Array(), "c400"],
  [Uint8Array.of(1, 2), "c4020102"],
  [new Uint8Array(256), `c50100${"00".repeat(256)}`],
  [new Uint8Array(65536), `c600010000${"00".repeat(65536)}`],
  [[], "90"],
  [[1, "a"], "9201a161"],
  [new Array(16).fill(1), `dc0010${"01".repeat(16)}`],
  [new Array(65536).fill(1), `dd00010000${"01".repeat(65536)}`],
  [{}, "80"],
  [{ a: 1 }, "81a16101"],
  [{ a: { b: [null] } }, "81a16181a16291c0"],
  [new Date(0), "d6ff00000000"],
  [new Date(4294967295_000), "d6ffffffffff"],
  [new Date(1), "d7ff003d090000000000"],
  [new Date(-1000), "c70cff00000000ffffffffffffffff"],
]

/** What others may write, of which there is a shorter form. */
const readOnly: readonly (readonly [unknown, string])[] = [
  [1, "cf0000000000000001"],
  [-1, "d3ffffffffffffffff"],
  [9007199254740991, "cf001fffffffffffff"],
  [9007199254740993n, "cf0020000000000001"],
  [-9007199254740993n, "d3ffdfffffffffffff"],
  [1.5, "ca3fc00000"],
  [5, "d20000 0005"],
  ["a", "d90161"],
  ["a", "db0000000161"],
  [{ a: 1 }, "de0001a16101"],
  [{ a: 1 }, "df00000001d9016101"],
  [[1], "dd0000000101"],
  [new Date(1500), "d7ff773594000000 0001"],
]

describe("the formats of the specification", () => {
  for (const [value, hex] of examples) {
    test(`${hex.slice(0, 30)} is read, and written`, () => {
      assert.deepStrictEqual(read(hex), value)
      assert.equal(hexText(codec.encode(value)), hex)
    })
  }
  for (const [value, hex] of readOnly) test(`${hex} is read`, () => assert.deepStrictEqual(read(hex), value))

  test("whole numbers beyond 32 bits are written as integers, which typed readers of other languages want", () => {
    assert.equal(hexText(codec.encode({ id: 2 ** 40 })), "81a26964d30000010000000000")
    assert.equal(hexText(codec.encode([-(2 ** 40)])), "91d3ffffff0000000000")
    assert.equal(hexText(codec.encode(2 ** 53 - 1)), "d3001fffffffffffff")
    assert.equal(hexText(codec.encode({ a: undefined, b: 1 })), "81a16201")
  })

  test("maps with other keys are refused, unless maps are asked for", () => {
    assert.throws(() => read("82010203a161"), /key at byte 1 is no text/)
    assert.throws(() => read("8190c0"), /key at byte 1 is no text/)
    assert.throws(() => read("81c40101c0"), /key at byte 1 is no text/)
    const value = new Map<unknown, unknown>([
      [1, 2],
      [2 ** 40, "x"],
      ["__proto__", new Map([[null, [true]]])],
    ])
    assert.deepStrictEqual(maps.decode(maps.encode(value)), value)
    // The wide number makes a copy of the object necessary.
    const wide = JSON.parse('{"__proto__":{"a":1},"wide":1099511627776}')
    assert.deepStrictEqual(
      maps.decode(maps.encode(wide)),
      new Map<string, unknown>([
        ["__proto__", new Map([["a", 1]])],
        ["wide", 2 ** 40],
      ]),
    )
  })
})

test("every plain value comes back", () => {
  const values = plainValue({ bytes: true, dates: true, bigints: { min: -(2n ** 63n), max: 2n ** 64n - 1n } })
  fc.assert(fc.property(values, (value) => assert.deepStrictEqual(codec.decode(codec.encode(value)), value)))
})

describe("what is refused", () => {
  const refused: readonly (readonly [string, string, RegExp])[] = [
    ["nothing", "", /end inside of the value, at byte 0/],
    ["bytes behind the value", "0102", /1 bytes follow the value, from byte 1 on/],
    ["the byte that begins nothing", "c1", /byte 0 is 0xc1, which begins no value/],
    ["text that is not UTF-8", "92a161a1ff", /text at byte 4 is not UTF-8/],
    ["half a surrogate pair", "a3eda080", /text at byte 1 is not UTF-8/],
    ["a key that is not UTF-8", "81a1ff01", /text at byte 2 is not UTF-8/],
    ["the key __proto__", "81a95f5f70726f746f5f5f01", /__proto__/],
    ["the key __proto__, longer", "81d9095f5f70726f746f5f5f01", /__proto__/],
    ["a timestamp of another length", "c705ff0000000000", /timestamp at byte 2 has 5 bytes/],
    ["an undefined of the library's own", "d40000", /extension 0; known is -1/],
    ["a record definition of the library's own", "d4724091a16101", /extension 114/],
    ["a regular expression of the library's own", "c7007892a178a167", /extension 120/],
    ["an error of the library's own", "c7006593a54572726f72a178c0", /extension 101/],
    ["a set of the library's own", "c700739101", /extension 115/],
    ["a reference of the library's own", "d66900000001 91c0", /extension 105/],
    ["a bundle of the library's own", "d66200000000", /extension 98/],
  ]
  for (const [name, hex, message] of refused) {
    test(name, () =>
      assert.throws(
        () => read(hex),
        (error) => error instanceof DecodeError && message.test(error.message),
      ),
    )
  }

  test("every beginning of a value", () => {
    for (const [, hex] of [...examples, ...readOnly]) {
      const bytes = hexBytes(hex)
      for (let end = 0; end < Math.min(bytes.length, 40); end++)
        assert.throws(() => codec.decode(bytes.subarray(0, end)), DecodeError)
    }
  })

  test("lengths that are not there, and nesting without end, at once and without the memory", () => {
    const before = process.memoryUsage().rss
    for (const hex of ["ddffffffff", "dfffffffff", "dbffffffff", "c6ffffffff", "dd0fffffff01"]) {
      assert.throws(() => read(hex), /end inside of the value/)
    }
    assert.throws(
      () => codec.decode(new Uint8Array(1_000_000).fill(0x91)),
      /nested deeper than 1000 levels, at byte 1000/,
    )
    assert.ok(process.memoryUsage().rss - before < 100 << 20)
    const levels = Uint8Array.from([...new Array(1000).fill(0x91), 1])
    assert.deepStrictEqual(codec.encode(codec.decode(levels)), levels)
  })

  test("any bytes give a DecodeError, or a value of the plain specification", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        for (const one of [codec, maps]) {
          let value: unknown
          try {
            value = one.decode(bytes)
          } catch (error) {
            assert.ok(error instanceof DecodeError, String(error))
            continue
          }
          assert.deepStrictEqual(one.decode(one.encode(value)), value)
        }
      }),
      { numRuns: 3000 },
    )
  })

  test("a failure leaves the codec as it was", () => {
    const cycle: { self?: unknown } = {}
    cycle.self = cycle
    for (let round = 0; round < 10; round++) {
      assert.throws(() => codec.encode(cycle), /a cycle, at self/)
      assert.throws(() => read("dd0fffffff01"))
      assert.deepStrictEqual(codec.decode(codec.encode({ a: [round] })), { a: [round] })
    }
  })
})

test("payloads and values share no memory", () => {
  const payload = Buffer.concat([Buffer.of(9, 9), codec.encode({ bytes: Uint8Array.of(1, 2) })]).subarray(2)
  const { bytes } = codec.decode(payload) as { bytes: Uint8Array }
  payload.fill(0)
  assert.deepStrictEqual(bytes, Uint8Array.of(1, 2))
  assert.equal(Object.keys(payload).length, payload.length, "and the payload has no new property")
  const first = codec.encode("first")
  const copy = Uint8Array.from(first)
  for (let round = 0; round < 10_000; round++) codec.encode({ round })
  assert.deepStrictEqual(Uint8Array.from(first), copy)
})
