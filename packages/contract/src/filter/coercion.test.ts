import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { compareTexts, comparisonWith } from "./comparison.ts"
import { compareDecimals, decimalOf, parseDecimal } from "./decimal.ts"
import { instantOf, parseRfc3339 } from "./instant.ts"

const second = 1_000_000_000n

describe("an instant in RFC 3339", () => {
  it("is the same in every zone", () => {
    const instant = BigInt(Date.UTC(2026, 8, 21, 18, 4, 12)) * 1_000_000n
    for (const text of [
      "2026-09-21T18:04:12Z",
      "2026-09-21t18:04:12z",
      "2026-09-21T20:34:12+02:30",
      "2026-09-21T11:04:12-07:00",
      "2026-09-21T18:04:12-00:00",
    ])
      assert.equal(parseRfc3339(text), instant, text)
  })

  it("keeps a fraction of up to nine digits", () => {
    assert.equal(parseRfc3339("1970-01-01T00:00:00.000000001Z"), 1n)
    assert.equal(parseRfc3339("1970-01-01T00:00:00.5Z"), second / 2n)
    assert.equal(parseRfc3339("1969-12-31T23:59:59.999999999Z"), -1n)
    assert.equal(parseRfc3339("1970-01-01T00:00:00.0000000001Z"), undefined)
    assert.equal(parseRfc3339("1970-01-01T00:00:00.Z"), undefined)
  })

  it("reads a leap second as the second behind it, and only in the last minute of a day in UTC", () => {
    assert.equal(parseRfc3339("2016-12-31T23:59:60Z"), parseRfc3339("2017-01-01T00:00:00Z"))
    assert.equal(parseRfc3339("2016-12-31T15:59:60-08:00"), parseRfc3339("2017-01-01T00:00:00Z"))
    assert.equal(parseRfc3339("2016-12-31T22:59:60Z"), undefined)
    assert.equal(parseRfc3339("2016-12-31T23:59:61Z"), undefined)
  })

  it("has days that exist, a zone, and nothing else", () => {
    for (const text of [
      "2026-02-29T00:00:00Z",
      "2026-13-01T00:00:00Z",
      "2026-00-10T00:00:00Z",
      "2026-04-31T00:00:00Z",
      "2026-01-01T24:00:00Z",
      "2026-01-01T00:60:00Z",
      "2026-01-01 00:00:00Z",
      "2026-01-01T00:00:00",
      "2026-01-01T00:00:00+2:00",
      "2026-01-01T00:00:00+24:00",
      " 2026-01-01T00:00:00Z",
      "2026-01-01T00:00Z",
      "26-01-01T00:00:00Z",
    ])
      assert.equal(parseRfc3339(text), undefined, text)
    assert.equal(parseRfc3339("2024-02-29T00:00:00Z"), BigInt(Date.UTC(2024, 1, 29)) * 1_000_000n)
    assert.equal(parseRfc3339("0001-01-01T00:00:00Z"), -62135596800n * second)
    assert.equal(parseRfc3339("9999-12-31T23:59:59Z"), 253402300799n * second)
  })

  it("agrees with Date on every millisecond", () => {
    fc.assert(
      fc.property(
        fc.date({ min: new Date("0000-01-01T00:00:00Z"), max: new Date("9999-12-31T23:59:59Z"), noInvalidDate: true }),
        (date) => {
          assert.equal(parseRfc3339(date.toISOString()), BigInt(date.getTime()) * 1_000_000n)
        },
      ),
    )
  })
})

describe("an instant as a number", () => {
  it("is a whole number of its unit, as a number, a bigint or digits", () => {
    assert.equal(instantOf(1_758_470_652, "epochSeconds"), 1_758_470_652n * second)
    assert.equal(instantOf("1758470652331", "epochMillis"), 1_758_470_652_331n * 1_000_000n)
    assert.equal(instantOf(-5n, "epochMicros"), -5000n)
    for (const value of [1.5, Number.NaN, Number.POSITIVE_INFINITY, "1.5", "", " 1", "1e3", true, [], null])
      assert.equal(instantOf(value, "epochMillis"), undefined, String(value))
    assert.equal(instantOf(5, "rfc3339"), undefined)
  })

  it("can be compared with RFC 3339 text in the filter", () => {
    const compare = comparisonWith("1970-01-01T00:00:01Z", "epochMillis")
    assert.equal(compare?.(1000), 0)
    assert.equal(compare?.(999), -1)
    assert.equal(comparisonWith(5, "rfc3339"), undefined)
    assert.equal(comparisonWith("yesterday", "epochMillis"), undefined)
  })
})

describe("an exact decimal", () => {
  it("is compared without rounding", () => {
    const compare = (a: string, b: string): number => {
      const [left, right] = [parseDecimal(a), parseDecimal(b)]
      assert.ok(left !== undefined && right !== undefined)
      return compareDecimals(left, right)
    }
    assert.equal(compare("1.50", "1.5"), 0)
    assert.equal(compare("-0", "0.000"), 0)
    assert.equal(compare("9007199254740993", "9007199254740992"), 1)
    assert.equal(compare("0.1", "0.10000000000000000000000000001"), -1)
    assert.equal(compare("-2", "-1.999"), -1)
    assert.equal(compare("1e3", "1000"), 0)
    assert.equal(compare(".5", "5E-1"), 0)
  })

  it("is refused where it is more than a number", () => {
    for (const text of [
      "",
      "-",
      ".",
      "1.",
      " 1",
      "1 ",
      "1,5",
      "0x10",
      "--1",
      "1e",
      "NaN",
      "Infinity",
      "1e99999",
      "1".repeat(513),
    ])
      assert.equal(parseDecimal(text), undefined, text)
    assert.equal(decimalOf(Number.NaN), undefined)
    assert.equal(decimalOf(Number.NEGATIVE_INFINITY), undefined)
  })

  it("orders doubles as doubles, whatever their text", () => {
    const doubles = fc.double({ noNaN: true, noDefaultInfinity: true })
    fc.assert(
      fc.property(doubles, doubles, (a, b) => {
        const [left, right] = [decimalOf(a), decimalOf(b)]
        assert.ok(left !== undefined && right !== undefined)
        assert.equal(compareDecimals(left, right), Math.sign(a - b) || (a < b ? -1 : a > b ? 1 : 0))
      }),
    )
  })
})

describe("plain comparison", () => {
  it("orders texts as their UTF-8 bytes", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), (a, b) => {
        fc.pre(a.isWellFormed() && b.isWellFormed())
        assert.equal(Math.sign(compareTexts(a, b)), Buffer.compare(Buffer.from(a), Buffer.from(b)))
      }),
    )
    assert.ok(compareTexts("\uffff", "\u{10000}") < 0)
  })

  it("is exact between numbers and bigints", () => {
    assert.equal(comparisonWith(2 ** 53 - 1, undefined)?.(9007199254740993n), 1)
    assert.equal(comparisonWith(9007199254740993n, undefined)?.(9007199254740992), -1)
    assert.equal(comparisonWith(0, undefined)?.(-0), 0)
    assert.ok(Number.isNaN(comparisonWith(1, undefined)?.(Number.NaN)))
  })

  it("knows no order between types", () => {
    for (const [wanted, value] of [
      ["5", 5],
      [5, "5"],
      [true, 1],
      [1, true],
      ["a", ["a"]],
      [1, {}],
      ["a", new Uint8Array()],
    ] as const)
      assert.equal(comparisonWith(wanted, undefined)?.(value), undefined)
  })
})
