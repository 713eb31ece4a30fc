/** Integers that a number cannot hold are never rounded without a word. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError, InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { json } from "./json.ts"

const exact = json()
const big = json((value) => value, { integers: "bigint" })
const rounded = json((value) => value, { integers: "number" })
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

/** The digits of an integer, from a few to many, and where a text has it. */
const digits = fc
  .tuple(
    fc.boolean(),
    fc.oneof(
      fc.bigInt({ min: 0n, max: 10n ** 14n }),
      fc.bigInt({ min: 0n, max: 2n ** 64n }),
      fc.bigInt({ min: 0n, max: 10n ** 40n }),
    ),
  )
  .map(([negative, integer]) => `${negative && integer > 0n ? "-" : ""}${integer}`)
const places: readonly (readonly [string, string])[] = [
  ["", ""],
  ["[", "]"],
  [" [ ", "\n]"],
  ["[0,", ",1]"],
  ['{"a":', "}"],
  ['{"abcdefghijklmnopqrstuvwxyz":"0123456789012345678","b": ', ',"c":1}'],
  ["[[[\t", "]]]"],
  ['["x', '"]'],
]
const place = fc.constantFrom(...places)

test("an integer is read as what it is, or not at all", () => {
  fc.assert(
    fc.property(digits, place, fc.nat(40), (integer, [before, after], spaces) => {
      const text = `${" ".repeat(spaces)}${before}${integer}${after}`
      const inString = before.endsWith("x")
      let value: unknown
      try {
        value = exact.decode(bytes(text))
      } catch (error) {
        assert.ok(
          error instanceof DecodeError && error.message.includes("more digits than a number holds"),
          String(error),
        )
        assert.ok(!inString && BigInt(Number(integer)) !== BigInt(integer))
        value = undefined
      }
      if (value !== undefined && !inString) {
        const number = Number(integer)
        assert.ok(BigInt(number) === BigInt(integer) || String(number) === integer, text)
        assert.deepEqual(value, JSON.parse(text))
      }
      assert.deepEqual(rounded.decode(bytes(text)), JSON.parse(text))
      const found = leaf(big.decode(bytes(text)))
      if (!inString) assert.equal(BigInt(found as bigint), BigInt(integer))
    }),
    { numRuns: 2000 },
  )
})

test("what JSON.stringify writes is read, whatever number it was", () => {
  fc.assert(
    fc.property(fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.maxSafeInteger()), (number) => {
      const value = number === 0 ? 0 : number
      assert.deepEqual(exact.decode(exact.encode([value])), [value])
    }),
    { numRuns: 1000 },
  )
})

describe("at the edges", () => {
  test("2^53 and its neighbours", () => {
    assert.equal(exact.decode(bytes("9007199254740991")), 2 ** 53 - 1)
    assert.equal(exact.decode(bytes("9007199254740992")), 2 ** 53)
    assert.throws(
      () => exact.decode(bytes("9007199254740993")),
      /the integer 9007199254740993 has more digits than a number holds/,
    )
    assert.throws(() => exact.decode(bytes('{"id":-12345678901234567890}')), DecodeError)
    assert.deepEqual(big.decode(bytes('{"id":-12345678901234567890,"n":5}')), { id: -12345678901234567890n, n: 5 })
  })

  test("fractions, exponents and digits inside of strings are what JSON.parse makes of them", () => {
    const text =
      '{"a":0.12345678901234567890,"b":"12345678901234567890","c":1e20,"d":"x, 12345678901234567890","e":12345678901234567.5}'
    for (const codec of [exact, big, rounded]) assert.deepEqual(codec.decode(bytes(text)), JSON.parse(text))
  })

  test("bigints are written as digits where they are read as bigints, and refused elsewhere", () => {
    const value = { id: 2n ** 70n, list: [-1n] }
    assert.equal(new TextDecoder().decode(big.encode(value)), '{"id":1180591620717411303424,"list":[-1]}')
    assert.deepEqual(big.decode(big.encode(value)), { id: 2n ** 70n, list: [-1] })
    for (const codec of [exact, rounded])
      assert.throws(() => codec.encode(value), /JSON has no form for the bigint 1180591620717411303424, at id/)
    assert.throws(() => json((value) => value, { integers: "string" } as never), InvalidError)
  })

  test("integers beyond ±2^4096 are refused in both directions, however long, at once", () => {
    const edge = 2n ** 4096n
    for (const value of [edge, -edge]) assert.equal(big.decode(big.encode(value)), value)
    for (const value of [edge + 1n, -edge - 1n])
      assert.throws(() => big.encode({ id: value }), /JSON has no form for a bigint of 1234 digits, at id/)
    // Were it made a bigint, this would take half a minute.
    const long = bytes(`{"id":${"9".repeat(10_000_000)}}`)
    assert.throws(() => big.decode(long), /the integer 9{37}… \(10000000 digits\) is beyond ±2\^4096/)
    assert.throws(() => exact.decode(long), DecodeError)
  })

  test("a long number is told shortened", () => {
    assert.throws(() => exact.decode(bytes("1".repeat(5000))), /the integer 1{37}… \(5000 digits\) has more/)
  })
})

function leaf(value: unknown): unknown {
  if (Array.isArray(value)) return leaf(value.length === 3 ? value[1] : value[0])
  if (typeof value !== "object" || value === null) return value
  return leaf("b" in value ? value.b : Object.values(value)[0])
}
