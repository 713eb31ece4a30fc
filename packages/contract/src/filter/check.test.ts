import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { checkFilter } from "./check.ts"
import { expressions } from "./filter.test-support.ts"
import type { Filter, FilterExpression } from "./filter.ts"
import { filterText, parseFilterText } from "./filter-text.ts"

const leaf: FilterExpression = { path: "a", op: "present" }

function refuses(filter: unknown, message: RegExp | string): void {
  assert.throws(
    () => checkFilter(filter),
    (error: Error & { kind: string }) => {
      assert.equal(error.kind, "invalid")
      if (typeof message === "string")
        assert.ok(error.message.startsWith(message), `${error.message} should begin with ${message}`)
      else assert.match(error.message, message)
      return true
    },
  )
}

function accepts(filter: Filter): void {
  checkFilter(filter)
}

/** `leaf` below so many operators. */
function nested(levels: number): FilterExpression {
  return levels === 0 ? leaf : { not: nested(levels - 1) }
}

describe("checking a filter", () => {
  it("fills in the defaults of table 1.13", () => {
    assert.deepEqual(checkFilter({ where: leaf }), {
      where: leaf,
      codec: "json",
      fault: "stop",
      foreign: "reject",
      mismatch: "reject",
    })
  })

  it("gives data of its own that cannot be changed", () => {
    const given = { where: { all: [{ path: "a", op: "in", value: [1, 2] }] } }
    const checked = checkFilter(given)
    given.where.all[0]?.value.push(3)
    assert.deepEqual(checked.where, { all: [{ path: "a", op: "in", value: [1, 2] }] })
    const all = (checked.where as { all: FilterExpression[] }).all
    assert.throws(() => all.push(leaf), TypeError)
    assert.throws(() => Object.assign(checked, { fault: "drop" }), TypeError)
  })

  it("names the place of a fault", () => {
    refuses(undefined, "filter: expected an object, not undefined")
    refuses(
      { where: leaf, faults: "drop" },
      "filter.faults: is not known here; allowed are where, codec, fault, foreign, mismatch",
    )
    refuses({ where: leaf, fault: "skip" }, 'filter.fault: "skip" is not known; allowed are stop, pass, drop')
    refuses({}, "filter.where: expected an object, not undefined")
    refuses(
      { where: { all: [leaf, leaf, { any: [{ path: "a..b", op: "present" }] }] } },
      'filter.where.all[2].any[0].path: path "a..b" has an empty key',
    )
    refuses({ where: { all: [leaf], any: [leaf] } }, "filter.where.any: is not known here; allowed are all")
    refuses({ where: { all: [] } }, "filter.where.all: the list is empty")
    refuses({ where: { not: [leaf] } }, "filter.where.not: expected an object, not a list")
    refuses({ where: { path: "a" } }, 'filter.where: an expression has "all", "any" or "not"')
    refuses({ where: { op: "present" } }, 'filter.where: a test looks at one place, a "path" or a "header"')
    refuses({ where: { path: "a", header: "b", op: "present" } }, "filter.where: a test looks at one place")
    refuses(
      { where: { path: "a", op: "like", value: "x" } },
      'filter.where.op: "like" is not known; allowed are eq, ne,',
    )
    refuses(
      { where: { path: "a", op: "present", value: 1 } },
      "filter.where.value: is not known here; allowed are path, header, op",
    )
    refuses(
      { where: { path: "a", op: "eq" } },
      "filter.where.value: expected a text, number, bigint, boolean or null, not undefined",
    )
    refuses(
      { where: { path: "a", op: "eq", value: 1, caseInsensitive: true } },
      "filter.where.caseInsensitive: is not known here",
    )
    refuses({ where: { path: "a", op: "prefix", value: "x", as: "number" } }, "filter.where.as: is not known here")
    refuses(
      { where: { path: "a", op: "gt", value: true } },
      'filter.where.value: "gt" compares with a number or a text, not true',
    )
    refuses({ where: { path: "a", op: "gt", value: null } }, 'filter.where.value: "gt" compares')
    refuses({ where: { path: "a", op: "glob", value: 3 } }, "filter.where.value: expected a text, not 3")
    refuses({ where: { path: "a", op: "in", value: ["x", {}] } }, "filter.where.value[1]: expected a text")
    refuses(
      { where: { path: "a", op: "in", value: ["1", "x"], as: "number" } },
      'filter.where.value[1]: "x" does not read as number',
    )
    refuses(
      { where: { path: "a", op: "eq", value: null, as: "number" } },
      "filter.where.value: null does not read as number",
    )
    refuses(
      { where: { path: "a", op: "contains", value: 1, caseInsensitive: true } },
      "filter.where.caseInsensitive: only a text has a case",
    )
    refuses({ where: { path: "a", op: "regex", value: "(" } }, 'filter.where.value: "(" is no regular expression')
    refuses({ where: { path: "a", op: "glob", value: "\\" } }, "filter.where.value: glob")
    refuses({ where: { header: "", op: "present" } }, "filter.where.header: the text has 0 bytes")
    refuses({ where: { path: 3, op: "present" } }, "filter.where.path: expected a text, not 3")
    refuses(
      { where: leaf, codec: "headersOnly" },
      'filter.where.path: a filter with codec "headersOnly" looks at headers only',
    )
    refuses({ where: { path: "a", op: "eq", value: "\ud800" } }, "filter.where.value: the text has a lone surrogate")
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY])
      refuses({ where: { path: "a", op: "eq", value } }, /^filter\.where\.value: .* is not a finite number/)
    refuses(
      { where: { path: "a", op: "eq", value: 2 ** 53 } },
      "filter.where.value: 9007199254740992 may have lost digits",
    )
    refuses(new Map(), "filter: expected an object")
  })

  it("refuses codecs that need a schema as unsupported, with what to use instead", () => {
    for (const codec of ["avro", "protobuf"])
      assert.throws(() => checkFilter({ where: leaf, codec }), {
        kind: "unsupported",
        message: /^filter\.codec: .*headersOnly/,
      })
    refuses({ where: leaf, codec: "xml" }, 'filter.codec: "xml" is not known; allowed are json, cbor, headersOnly')
  })

  it("takes what is at a limit, and refuses what is one above", () => {
    accepts({ where: { all: Array.from({ length: 127 }, () => leaf) } })
    refuses(
      { where: { all: Array.from({ length: 128 }, () => leaf) } },
      "filter.where.all[127]: the expression has more than 128 nodes",
    )
    accepts({ where: nested(7) })
    refuses(
      { where: nested(8) },
      "filter.where.not.not.not.not.not.not.not.not: the expression is nested deeper than 8",
    )
    accepts({ where: { path: Array(16).fill("a").join("."), op: "present" } })
    refuses(
      { where: { path: Array(17).fill("a").join("."), op: "present" } },
      /^filter\.where\.path: .* has 17 steps; at most 16/,
    )
    accepts({ where: { path: "é".repeat(128), op: "present" } })
    refuses(
      { where: { path: `${"é".repeat(128)}a`, op: "present" } },
      /^filter\.where\.path: .* has 257 bytes; at most 256/,
    )
    accepts({ where: { path: "a", op: "in", value: Array.from({ length: 64 }, (_, i) => i) } })
    refuses(
      { where: { path: "a", op: "in", value: Array.from({ length: 65 }, (_, i) => i) } },
      "filter.where.value: the list has 65 values; at most 64",
    )
    refuses({ where: { path: "a", op: "in", value: [] } }, "filter.where.value: the list is empty")
    accepts({ where: { path: "a", op: "eq", value: "é".repeat(512) } })
    refuses(
      { where: { path: "a", op: "eq", value: `${"é".repeat(512)}a` } },
      "filter.where.value: the text has 1025 bytes; 0 to 1024",
    )
    const patterns = (count: number): Filter => ({
      where: {
        all: Array.from(
          { length: count },
          (_, i) => ({ path: "a", op: i % 2 === 0 ? "glob" : "regex", value: "x" }) as const,
        ),
      },
    })
    accepts(patterns(4))
    refuses(patterns(5), 'filter.where.all[4].value: a filter has at most 4 tests by "glob" and "regex"')
    const sized = (bytes: number): Filter => {
      const values = Array.from({ length: 8 }, () => "x".repeat(900))
      const filter = (last: string): Filter => ({ where: { path: "a", op: "in", value: [...values, last] } })
      return filter("y".repeat(bytes - filterText(checkFilter(filter(""))).length))
    }
    assert.equal(filterText(checkFilter(sized(8192))).length, 8192)
    refuses(sized(8193), "filter: its text has 8193 bytes; at most 8192")
  })

  it("is not led around by cycles and odd objects", () => {
    const cycle: { not?: unknown } = {}
    cycle.not = cycle
    refuses({ where: cycle }, /nested deeper than 8/)
    refuses({ where: Object.create(leaf) }, "filter.where: expected an object")
    refuses({ where: { path: "a", op: "toString" } }, "filter.where.op:")
  })
})

describe("the text of a filter", () => {
  it("is read back to the same filter, and is the same however the filter was written", () => {
    fc.assert(
      fc.property(expressions, (where) => {
        const checked = checkFilter({ mismatch: "pass", where })
        const text = filterText(checked)
        assert.deepEqual(parseFilterText(text), checked)
        assert.equal(filterText(parseFilterText(text)), text)
        const turned = Object.fromEntries(Object.entries({ codec: "json", where, mismatch: "pass" }).reverse())
        assert.equal(filterText(checkFilter(turned)), text)
      }),
    )
  })

  it("keeps whole numbers of any size", () => {
    const value = 12345678901234567890123n
    const text = filterText(checkFilter({ where: { path: "a", op: "eq", value } }))
    assert.match(text, /"value":12345678901234567890123\}/)
    assert.deepEqual(parseFilterText(text).where, { path: "a", op: "eq", value })
    assert.equal(
      filterText(checkFilter({ where: { path: "a", op: "eq", value: 5n } })),
      filterText(checkFilter({ where: { path: "a", op: "eq", value: 5 } })),
    )
  })

  it("is checked again when it is read", () => {
    assert.throws(() => parseFilterText("{"), { kind: "invalid", message: /is not JSON/ })
    assert.throws(() => parseFilterText('{"where":{"op":"eq"}}'), { kind: "invalid", message: /^filter\.where: / })
    assert.throws(() => parseFilterText(`{"where":${"[".repeat(200_000)}${"]".repeat(200_000)}}`), { kind: "invalid" })
  })
})
