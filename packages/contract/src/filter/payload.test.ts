import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { readCbor as readCborWithin } from "./cbor.ts"
import { parseFieldPath } from "./field-path.ts"
import { exactJsonNumber, exactJsonNumbers } from "./json-number.ts"
import { decodePayload, valueAt } from "./payload.ts"

function readCbor(input: Uint8Array): unknown {
  return readCborWithin(input, { deepest: 64 })
}

function bytes(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))
}

describe("a path", () => {
  it("has keys between dots and indexes in brackets", () => {
    assert.deepEqual(parseFieldPath("a.b[0]", "at"), ["a", "b", 0])
    assert.deepEqual(parseFieldPath("[0].stations[12][3]", "at"), [0, "stations", 12, 3])
    assert.deepEqual(parseFieldPath("codes.200", "at"), ["codes", "200"])
    assert.deepEqual(parseFieldPath("a\\.b.c\\[d\\]\\\\", "at"), ["a.b", "c[d]\\"])
    assert.deepEqual(parseFieldPath("ключ.😀", "at"), ["ключ", "😀"])
  })

  it("is read back from any steps, whatever is in the keys", () => {
    const segments = fc.array(fc.oneof(fc.string({ minLength: 1, maxLength: 6 }), fc.nat({ max: 2 ** 32 - 1 })), {
      minLength: 1,
      maxLength: 16,
    })
    fc.assert(
      fc.property(segments, (steps) => {
        const text = steps
          .map((step, i) =>
            typeof step === "number" ? `[${step}]` : `${i === 0 ? "" : "."}${step.replace(/[.[\]\\]/g, "\\$&")}`,
          )
          .join("")
        assert.deepEqual(parseFieldPath(text, "at"), steps)
      }),
    )
  })

  it("is refused with its name", () => {
    for (const text of [
      "",
      "a..b",
      ".a",
      "a.",
      "a[",
      "a[]",
      "a[01]",
      "a[x]",
      "a]",
      "a\\b",
      "a\\",
      "a[1]b",
      "a[4294967296]",
      "a[-1]",
    ])
      assert.throws(
        () => parseFieldPath(text, "filter.where.path"),
        { kind: "invalid", message: /^filter\.where\.path: path / },
        text,
      )
  })

  it("finds own values only", () => {
    const value = JSON.parse('{"a":{"b":[1,{"__proto__":2}]},"toString":null}')
    const find = (path: string): unknown => valueAt(value, parseFieldPath(path, "at"))
    assert.equal(find("a.b[0]"), 1)
    assert.equal(find("a.b[1].__proto__"), 2)
    assert.equal(find("toString"), null)
    for (const path of ["constructor", "a.b.length", "a.b[2]", "a[0]", "a.b[0].c", "toString.name", "a.b.0"])
      assert.equal(find(path), undefined, path)
  })
})

describe("a whole number of a JSON text", () => {
  it("is found with all its digits, as a reviver that sees the source finds it", () => {
    const spaces = fc.constantFrom("", " ", "\n\t")
    const numbers = fc.oneof(
      fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }).map(String),
      fc.constantFrom("1.5", "-0", "1e3", "12345678901234567890.0"),
    )
    const texts = fc.letrec<{ value: string }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 3 },
        numbers,
        fc.constantFrom("true", "null", '"a\\"]}"', '"\\\\"', "[]", "{}"),
        fc
          .tuple(spaces, fc.array(tie("value"), { maxLength: 4 }))
          .map(([space, items]) => `[${space}${items.join(`${space},${space}`)}${space}]`),
        fc
          .tuple(
            spaces,
            fc.array(fc.tuple(fc.constantFrom('"a"', '"\\u0061"', '"b"', '"x,:{"', '""'), tie("value")), {
              maxLength: 4,
            }),
          )
          .map(
            ([space, items]) =>
              `{${space}${items.map(([key, value]) => `${key}${space}:${space}${value}`).join(`${space},`)}${space}}`,
          ),
      ),
    })).value
    fc.assert(
      fc.property(texts, (text) => {
        for (const { path, value } of places(withSources(text), [])) {
          assert.equal(exactJsonNumber(text, path), wholeOf(value), text)
          if (!Array.isArray(value)) continue
          const elements = exactJsonNumbers(text, path)
          assert.deepEqual(elements, value.map(wholeOf))
        }
      }),
      { numRuns: 500 },
    )
    assert.equal(exactJsonNumber('{"a": [1, {"b": -12345678901234567890}]}', ["a", 1, "b"]), -12345678901234567890n)
    assert.equal(exactJsonNumber('{"a":1,"\\u0061":90071992547409931}', ["a"]), 90071992547409931n)
    assert.equal(exactJsonNumber("90071992547409931", []), 90071992547409931n)
    assert.equal(exactJsonNumber("90071992547409931.0", []), undefined)
  })

  it("is found below any depth without running out of stack", () => {
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`
    const text = `{"deep":${deep},"n":90071992547409931}`
    assert.equal(exactJsonNumber(text, ["n"]), 90071992547409931n)
    assert.equal(
      (decodePayload("json", new TextEncoder().encode(text)).value as { n: number }).n,
      Number("90071992547409931"),
    )
  })
})

/** The value with each number as the text that it has in the source, marked. */
function withSources(text: string): unknown {
  const reviver = (_key: string, value: unknown, context?: { readonly source?: string }): unknown =>
    typeof value === "number" ? `#${context?.source}` : value
  return JSON.parse(text, reviver)
}

function wholeOf(value: unknown): bigint | undefined {
  return typeof value === "string" && /^#-?\d+$/.test(value) ? BigInt(value.slice(1)) : undefined
}

function places(
  value: unknown,
  path: readonly (string | number)[],
): { path: readonly (string | number)[]; value: unknown }[] {
  const here = { path, value }
  if (Array.isArray(value)) return [here, ...value.flatMap((item, i) => places(item, [...path, i]))]
  if (typeof value === "object" && value !== null)
    return [here, ...Object.entries(value).flatMap(([key, item]) => places(item, [...path, key]))]
  return [here]
}

describe("CBOR", () => {
  it("is read as RFC 8949 has it in appendix A", () => {
    for (const [hex, value] of [
      ["00", 0],
      ["1818", 24],
      ["1903e8", 1000],
      ["1a000f4240", 1_000_000],
      ["1bffffffffffffffff", 18446744073709551615n],
      ["3bffffffffffffffff", -18446744073709551616n],
      ["c249010000000000000000", 18446744073709551616n],
      ["c349010000000000000000", -18446744073709551617n],
      ["3863", -100],
      ["f90001", 2 ** -24],
      ["f93c00", 1],
      ["f97bff", 65504],
      ["f9fc00", Number.NEGATIVE_INFINITY],
      ["fb3ff199999999999a", 1.1],
      ["fa47c35000", 100000],
      ["f4", false],
      ["f6", null],
      ["f7", null],
      ["f8ff", null],
      ["c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"],
      ["4401020304", bytes("01020304")],
      ["62c3bc", "ü"],
      ["8301820203820405", [1, [2, 3], [4, 5]]],
      ["5f42010243030405ff", bytes("0102030405")],
      ["7f657374726561646d696e67ff", "streaming"],
      ["9f018202039f0405ffff", [1, [2, 3], [4, 5]]],
      [
        "bf61610161629f0203ffff",
        new Map<string, unknown>([
          ["a", 1],
          ["b", [2, 3]],
        ]),
      ],
    ] as const)
      assert.deepEqual(readCbor(bytes(hex)), value, hex)
    assert.equal(Number.isNaN(readCbor(bytes("f97e00"))), true)
    assert.equal(readCbor(bytes("1b0020000000000000")), 2n ** 53n)
    assert.equal(readCbor(bytes("3b001fffffffffffff")), -(2n ** 53n))
    assert.equal(readCbor(bytes("1b001fffffffffffff")), 2 ** 53 - 1)
  })

  it("is refused where it is not one well-formed value", () => {
    for (const hex of [
      "",
      "0000",
      "18",
      "1c",
      "61ff",
      "ff",
      "81",
      "8201",
      "9f01",
      "bf01ff",
      "5f6161ff",
      "5f5f4101ffff",
      "f818",
      "fc",
      "a101",
      "5bffffffffffffffff",
      "9bffffffffffffffff",
      "c1ff",
    ])
      assert.throws(() => readCbor(bytes(hex)), SyntaxError, hex)
    assert.throws(() => readCbor(bytes("81".repeat(100_000))), /nested deeper than 64/)
    assert.deepEqual(readCbor(bytes(`${"81".repeat(64)}01`)) !== undefined, true)
    assert.throws(() => readCbor(bytes(`${"81".repeat(65)}01`)), /nested deeper than 64/)
  })

  it("never fails in another way, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (input) => {
        try {
          readCbor(input)
        } catch (error) {
          assert.ok(error instanceof SyntaxError, String(error))
        }
      }),
      { numRuns: 3000 },
    )
  })
})
