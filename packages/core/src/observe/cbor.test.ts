/** CBOR against the examples of RFC 8949, appendix A. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { readCbor } from "@millrace/contract"
import fc from "fast-check"
import { type CborValue, encodeCbor } from "./cbor.ts"

function decodeCbor(given: Uint8Array): unknown {
  return readCbor(given, { deepest: 16 })
}

function bytes(hex: string): Uint8Array {
  return Uint8Array.from(Buffer.from(hex, "hex"))
}

/** Value and encoding, as the appendix has them: what we write, and read. */
const written: readonly (readonly [CborValue, string])[] = [
  [0, "00"],
  [1, "01"],
  [10, "0a"],
  [23, "17"],
  [24, "1818"],
  [25, "1819"],
  [100, "1864"],
  [1000, "1903e8"],
  [1_000_000, "1a000f4240"],
  [1_000_000_000_000, "1b000000e8d4a51000"],
  [null, "f6"],
  ["", "60"],
  ["a", "6161"],
  ["IETF", "6449455446"],
  ['"\\', "62225c"],
  ["ü", "62c3bc"],
  ["水", "63e6b0b4"],
  ["𐅑", "64f0908591"],
  [[], "80"],
  [[1, 2, 3], "83010203"],
  [[1, [2, 3], [4, 5]], "8301820203820405"],
  [Array.from({ length: 25 }, (_, i) => i + 1), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"],
  [{}, "a0"],
  [{ a: 1, b: [2, 3] }, "a26161016162820203"],
  [["a", { b: "c" }], "826161a161626163"],
  [{ a: "A", b: "B", c: "C", d: "D", e: "E" }, "a56161614161626142616361436164614461656145"],
]

for (const [value, hex] of written) {
  test(`writes and reads ${hex}`, () => {
    assert.equal(Buffer.from(encodeCbor(value)).toString("hex"), hex)
    assert.deepEqual(plain(decodeCbor(bytes(hex))), value)
  })
}

const read: readonly (readonly [string, unknown])[] = [
  ["1bffffffffffffffff", 18_446_744_073_709_551_615n],
  ["3bffffffffffffffff", -18_446_744_073_709_551_616n],
  ["20", -1],
  ["3863", -100],
  ["f90000", 0],
  ["f98000", -0],
  ["f93c00", 1],
  ["fb3ff199999999999a", 1.1],
  ["f93e00", 1.5],
  ["f97bff", 65_504],
  ["fa47c35000", 100_000],
  ["f90001", 2 ** -24],
  ["f90400", 2 ** -14],
  ["f9c400", -4],
  ["f97c00", Number.POSITIVE_INFINITY],
  ["f97e00", Number.NaN],
  ["f9fc00", Number.NEGATIVE_INFINITY],
  ["f4", false],
  ["f5", true],
  ["f7", null],
  ["f0", null],
  ["f8ff", null],
  ["c11a514b67b0", 1_363_896_240],
  ["c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"],
  ["4401020304", bytes("01020304")],
  ["5f42010243030405ff", bytes("0102030405")],
  ["7f657374726561646d696e67ff", "streaming"],
  ["9fff", []],
  ["9f018202039f0405ffff", [1, [2, 3], [4, 5]]],
  ["83018202039f0405ff", [1, [2, 3], [4, 5]]],
  ["bf61610161629f0203ffff", { a: 1, b: [2, 3] }],
  ["bf6346756ef563416d7421ff", { Fun: true, Amt: -2 }],
]

for (const [hex, value] of read) {
  test(`reads ${hex}`, () => assert.deepEqual(plain(decodeCbor(bytes(hex))), value))
}

const malformed: readonly (readonly [string, RegExp])[] = [
  ["", /end within/],
  ["18", /end within/],
  ["1903", /end within/],
  ["61", /end within/],
  ["7b7fffffffffffffff61", /end within/],
  ["9bffffffffffffffff00", /end within/],
  ["8201", /end within/],
  ["a161", /end within/],
  ["0000", /left behind/],
  ["1c", /reserved/],
  ["ff", /stop/],
  ["81ff", /early/],
  ["a1ff", /early/],
  ["a101ff", /stop/],
  ["bf01ff", /stop/],
  ["7f4101ff", /another type/],
  ["61ff", /UTF-8/],
  ["f81f", /simple/],
  ["fc", /reserved/],
  ["81".repeat(40), /deeper/],
  ["c1".repeat(40), /deeper/],
]

for (const [hex, message] of malformed) {
  test(`refuses ${hex.slice(0, 24)}`, () =>
    assert.throws(() => decodeCbor(bytes(hex)), { name: "SyntaxError", message }))
}

test("numbers that it cannot write are refused", () => {
  for (const value of [-1, 1.5, Number.NaN, 2 ** 53]) assert.throws(() => encodeCbor(value), RangeError)
})

test("what is written is read as it was", () => {
  const value = fc.letrec<{ value: CborValue }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.maxSafeNat(),
      fc.string({ unit: "grapheme" }),
      fc.constant(null),
      fc.array(tie("value"), { maxLength: 5 }),
      fc.dictionary(fc.string(), tie("value"), { maxKeys: 5, noNullPrototype: true }),
    ),
  })).value
  fc.assert(fc.property(value, (given) => assert.deepEqual(plain(decodeCbor(encodeCbor(given))), given)))
})

test("random bytes are read or refused, and nothing else", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (given) => {
      try {
        decodeCbor(given)
      } catch (error) {
        assert.ok(error instanceof SyntaxError, String(error))
      }
    }),
    { numRuns: 2000 },
  )
})

/** Maps as objects, for comparison. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain)
  if (!(value instanceof Map)) return value
  const object: Record<string, unknown> = {}
  for (const [key, item] of value) {
    Object.defineProperty(object, String(key), {
      value: plain(item),
      enumerable: true,
      writable: true,
      configurable: true,
    })
  }
  return object
}
