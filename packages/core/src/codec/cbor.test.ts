/** CBOR against the examples of RFC 8949, appendix A, and against bytes that mean harm. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { cbor } from "./cbor.ts"
import { hexBytes, hexText, plainValue } from "./plain-values.test-support.ts"

const codec = cbor()
const read = (hex: string): unknown => codec.decode(hexBytes(hex))

/** RFC 8949, appendix A: what is written is what is read, in both directions. */
const examples: readonly (readonly [unknown, string])[] = [
  [0, "00"],
  [1, "01"],
  [10, "0a"],
  [23, "17"],
  [24, "1818"],
  [25, "1819"],
  [100, "1864"],
  [1000, "1903e8"],
  [1000000, "1a000f4240"],
  [1000000000000, "1b000000e8d4a51000"],
  [18446744073709551615n, "1bffffffffffffffff"],
  [18446744073709551616n, "c249010000000000000000"],
  [-18446744073709551616n, "3bffffffffffffffff"],
  [-18446744073709551617n, "c349010000000000000000"],
  [-1, "20"],
  [-10, "29"],
  [-100, "3863"],
  [-1000, "3903e7"],
  [1.1, "fb3ff199999999999a"],
  [1.5, "f93e00"],
  [3.4028234663852886e38, "fa7f7fffff"],
  [1.0e300, "fb7e37e43c8800759c"],
  [2 ** -24, "f90001"],
  [2 ** -14, "f90400"],
  [-4.1, "fbc010666666666666"],
  [Infinity, "f97c00"],
  [Number.NaN, "f97e00"],
  [-Infinity, "f9fc00"],
  [false, "f4"],
  [true, "f5"],
  [null, "f6"],
  [undefined, "f7"],
  [new Uint8Array(), "40"],
  [Uint8Array.of(1, 2, 3, 4), "4401020304"],
  ["", "60"],
  ["a", "6161"],
  ["IETF", "6449455446"],
  ['"\\', "62225c"],
  ["\u00fc", "62c3bc"],
  ["\u6c34", "63e6b0b4"],
  ["\ud800\udd51", "64f0908591"],
  [[], "80"],
  [[1, 2, 3], "83010203"],
  [[1, [2, 3], [4, 5]], "8301820203820405"],
  [Array.from({ length: 25 }, (_, index) => index + 1), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"],
  [{}, "a0"],
  [{ a: 1, b: [2, 3] }, "a26161016162820203"],
  [["a", { b: "c" }], "826161a161626163"],
  [{ a: "A", b: "B", c: "C", d: "D", e: "E" }, "a56161614161626142616361436164614461656145"],
]

/** What others may write, of which there is a shorter form. */
const readOnly: readonly (readonly [unknown, string])[] = [
  [-0, "f98000"],
  [1, "f93c00"],
  [100000, "fa47c35000"],
  [Infinity, "fb7ff0000000000000"],
  [Number.NaN, "fa7fc00000"],
  [[], "9fff"],
  [[1, [2, 3], [4, 5]], "9f018202039f0405ffff"],
  [{ a: 1, b: [2, 3] }, "bf61610161629f0203ffff"],
  [{ Fun: true, Amt: -2 }, "bf6346756ef563416d7421ff"],
  [new Date("2013-03-21T20:04:00.000Z"), "c074323031332d30332d32315432303a30343a30305a"],
  [new Date("2013-03-21T20:04:00.000Z"), "c11a514b67b0"],
  [new Date("2013-03-21T20:04:00.500Z"), "c1fb41d452d9ec200000"],
  [5, "c24105"],
]

describe("the examples of the specification", () => {
  for (const [value, hex] of examples) {
    test(`${hex} is read, and written`, () => {
      assert.deepStrictEqual(read(hex), value)
      assert.equal(hexText(codec.encode(value)), hex)
    })
  }
  for (const [value, hex] of readOnly) test(`${hex} is read`, () => assert.deepStrictEqual(read(hex), value))

  test("a date is an epoch time, to the millisecond", () => {
    assert.equal(hexText(codec.encode(new Date("2013-03-21T20:04:00.500Z"))), "c1fb41d452d9ec200000")
  })

  test("maps with other keys are refused, unless maps are asked for", () => {
    assert.throws(() => read("a201020304"), /non-string keys/)
    const maps = cbor((value) => value, { maps: "map" })
    assert.deepStrictEqual(
      maps.decode(hexBytes("a201020304")),
      new Map([
        [1, 2],
        [3, 4],
      ]),
    )
    assert.deepStrictEqual(
      maps.decode(
        maps.encode(
          new Map<unknown, unknown>([
            [1, "x"],
            [2n ** 60n, { a: 1 }],
          ]),
        ),
      ),
      new Map<unknown, unknown>([
        [1, "x"],
        [2n ** 60n, new Map([["a", 1]])],
      ]),
    )
  })
})

test("every plain value comes back", () => {
  const values = plainValue({ bytes: true, dates: 4e15, bigints: { min: -(2n ** 80n), max: 2n ** 80n } })
  fc.assert(fc.property(values, (value) => assert.deepStrictEqual(codec.decode(codec.encode(value)), value)))
})

test("a date is exact or refused", () => {
  const anyDate = fc.date({ noInvalidDate: true })
  const coarse = new Date("+143817-09-18T13:33:58.105Z")
  assert.throws(
    () => codec.encode(coarse),
    (error) => error instanceof InvalidError && /143817/.test(error.message),
  )
  fc.assert(
    fc.property(anyDate, (date) => {
      let payload: Uint8Array
      try {
        payload = codec.encode(date)
      } catch (error) {
        return error instanceof InvalidError && Math.abs(date.getTime()) > 4e15
      }
      return (codec.decode(payload) as Date).getTime() === date.getTime()
    }),
  )
})

describe("what is refused", () => {
  const refused: readonly (readonly [string, string, RegExp])[] = [
    ["nothing", "", /any content/],
    ["bytes behind the value", "0000", /too many terminals|follow/],
    ["a value that is cut off", "1903", /not enough data|too short|unexpected/i],
    ["a key that comes twice", "a2616101616102", /repeat map key "a"/],
    ["text that is not UTF-8", "61ff", /text at byte 0 is not UTF-8/],
    ["half a surrogate pair", "63eda080", /text at byte 0 is not UTF-8/],
    ["a tag that is not known", "d82076687474703a2f2f7777772e6578616d706c652e636f6d", /tag not supported \(32\)/],
    ["a date that is none", "c06161", /date is out of range/],
    ["a date far away", "c1fb7e37e43c8800759c", /date is out of range/],
    ["a date of bytes", "c14101", /not a number of seconds/],
    ["a bignum of text", "c26161", /not a byte string/],
    ["a reserved head", "1c", /./],
    ["a break alone", "ff", /break/],
  ]
  for (const [name, hex, message] of refused) test(name, () => assert.throws(() => read(hex), message))

  test("lengths that are not there, and nesting without end, at once and without the memory", () => {
    const before = process.memoryUsage().rss
    const hostile = [
      "9bffffffffffffffff",
      "9a7fffffff",
      "bb0fffffffffffffff",
      "5a7fffffff00",
      "7a7fffffff00",
      "9bffffffff00000000",
    ]
    for (const hex of hostile) assert.throws(() => read(hex), Error)
    assert.throws(() => codec.decode(new Uint8Array(1_000_000).fill(0x81)), /nested too deeply/)
    assert.throws(() => codec.decode(new Uint8Array(1_000_000).fill(0x9f)), /nested too deeply/)
    assert.throws(() => codec.decode(new Uint8Array(1_000_000).fill(0xc1)), /nested too deeply/)
    assert.throws(() => read(`c2${"5a00100000"}${"ff".repeat(0x100000)}`), /longer than 512/)
    assert.ok(process.memoryUsage().rss - before < 300 << 20)
  })

  test("any bytes give a value or an Error", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          codec.decode(bytes)
        } catch (error) {
          assert.ok(error instanceof Error)
        }
      }),
      { numRuns: 3000 },
    )
  })

  test("values beyond what CBOR has, by name", () => {
    assert.throws(
      () => codec.encode({ a: [1, { b: new Set() }] }),
      /CBOR has no form for an object \(Set\), at a\[1\]\.b/,
    )
    assert.throws(() => cbor(5 as never), InvalidError)
    assert.throws(() => cbor((value) => value, { maps: "x" } as never), /"object", "map"/)
    assert.throws(() => cbor((value) => value, { map: "x" } as never), /unknown option "map"/)
  })
})

test("what is read shares no memory with the payload, though that is a view of a buffer", () => {
  const payload = Buffer.concat([Buffer.of(9, 9), codec.encode({ bytes: Uint8Array.of(1, 2) })]).subarray(2)
  const { bytes } = codec.decode(payload) as { bytes: Uint8Array }
  payload.fill(0)
  assert.deepStrictEqual(bytes, Uint8Array.of(1, 2))
})
