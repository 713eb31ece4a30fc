import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { CorruptionError, DecodeError } from "../error.ts"
import { HeaderValue } from "../header-value.ts"
import { Headers } from "../headers.ts"
import { checkFilter } from "./check.ts"
import { expressions, headerLists, payloads } from "./filter.test-support.ts"
import type { Filter, FilterExpression } from "./filter.ts"
import { type Outcome, plain, seen } from "./plain-evaluator.test-support.ts"
import { compileFilter, type FilterRecord, type FilterVerdict } from "./program.ts"
import type { RecordSource } from "./record-view.ts"

const utf8 = new TextEncoder()

function record(payload: string | Uint8Array | null, headers: Parameters<typeof Headers.from>[0] = {}): FilterRecord {
  return { payload: typeof payload === "string" ? utf8.encode(payload) : payload, headers: Headers.from(headers) }
}

function verdict(filter: Filter, subject: FilterRecord): FilterVerdict {
  return compileFilter(checkFilter(filter)).verdict(subject)
}

function selects(where: FilterExpression, payload: string, headers: Parameters<typeof Headers.from>[0] = {}): boolean {
  return verdict({ where }, record(payload, headers)).judgement === "selected"
}

function expected(outcome: Outcome, filter: Filter): string {
  switch (outcome) {
    case "yes":
      return "selected"
    case "mismatch":
      return filter.mismatch === "pass" ? "selected" : "rejected"
    case "fault":
      return { stop: "stopped", pass: "selected", drop: "rejected" }[filter.fault ?? "stop"]
    default:
      return "rejected"
  }
}

describe("evaluating a filter", () => {
  const policies = fc.record({
    fault: fc.constantFrom("stop" as const, "pass" as const, "drop" as const),
    mismatch: fc.constantFrom("reject" as const, "pass" as const),
  })

  it("says what a plain evaluator says, under every policy", () => {
    fc.assert(
      fc.property(expressions, payloads, headerLists, policies, (where, payload, headers, policy) => {
        const filter: Filter = { where, ...policy }
        const typed = headers.map(
          ({ name, value }) =>
            [name, typeof value === "string" ? HeaderValue.string(value) : HeaderValue.int32(value)] as const,
        )
        const found = verdict(filter, record(payload, typed)).judgement
        assert.equal(found, expected(plain(where, seen(payload, headers)), filter))
      }),
      { numRuns: 2000 },
    )
  })

  it("keeps the laws of its logic: double negation, De Morgan, order and grouping do not matter", () => {
    const root = (where: FilterExpression, subject: FilterRecord): unknown => {
      const { truth, unknown } = compileFilter(checkFilter({ where })).explain(subject).root
      return [truth, unknown]
    }
    const small = expressions.filter(
      (where) => JSON.stringify(where, (_, value) => (typeof value === "bigint" ? String(value) : value)).length < 300,
    )
    fc.assert(
      fc.property(small, small, payloads, headerLists, (p, q, payload, headers) => {
        const depth = (where: FilterExpression): number =>
          "not" in where
            ? 1 + depth(where.not)
            : "all" in where
              ? 1 + Math.max(...where.all.map(depth))
              : "any" in where
                ? 1 + Math.max(...where.any.map(depth))
                : 1
        fc.pre(Math.max(depth(p), depth(q)) <= 5)
        const subject = record(
          payload,
          headers.map(
            ({ name, value }) =>
              [name, typeof value === "string" ? HeaderValue.string(value) : HeaderValue.int32(value)] as const,
          ),
        )
        assert.deepEqual(root({ not: { not: p } }, subject), root(p, subject))
        assert.deepEqual(root({ not: { all: [p, q] } }, subject), root({ any: [{ not: p }, { not: q }] }, subject))
        assert.deepEqual(root({ not: { any: [p, q] } }, subject), root({ all: [{ not: p }, { not: q }] }, subject))
        assert.deepEqual(root({ all: [p, q] }, subject), root({ all: [q, p] }, subject))
        assert.deepEqual(root({ any: [p, q] }, subject), root({ any: [q, p, q] }, subject))
        assert.deepEqual(root({ all: [p, { all: [q, p] }] }, subject), root({ all: [p, q] }, subject))
      }),
      { numRuns: 300 },
    )
  })

  it("selects nothing where a field is missing, but for null and presence", () => {
    for (const op of ["eq", "ne", "lt", "gte", "prefix"] as const)
      assert.equal(selects({ path: "x", op, value: "a" } as FilterExpression, "{}"), false, op)
    assert.equal(selects({ not: { path: "x", op: "eq", value: "a" } }, "{}"), false)
    assert.equal(selects({ path: "x", op: "eq", value: null }, "{}"), true)
    assert.equal(selects({ path: "x", op: "eq", value: null }, '{"x":null}'), true)
    assert.equal(selects({ path: "x", op: "ne", value: null }, '{"x":0}'), true)
    assert.equal(selects({ path: "x", op: "ne", value: null }, "{}"), false)
    assert.equal(selects({ path: "x", op: "present" }, '{"x":null}'), true)
    assert.equal(selects({ path: "x", op: "absent" }, '{"x":null}'), false)
    assert.equal(selects({ not: { path: "x", op: "absent" } }, "{}"), false)
  })

  it("compares whole numbers beyond 2^53 by all their digits", () => {
    assert.equal(selects({ path: "n", op: "eq", value: 9007199254740993n }, '{"n":9007199254740993}'), true)
    assert.equal(selects({ path: "n", op: "eq", value: 9007199254740993n }, '{"n":9007199254740992}'), false)
    assert.equal(selects({ path: "n[1]", op: "gt", value: 9007199254740992n }, '{"n":[0,9007199254740993]}'), true)
    assert.equal(selects({ path: "n", op: "contains", value: 9007199254740993n }, '{"n":["x",9007199254740993]}'), true)
    assert.equal(
      selects({ path: "n", op: "contains", value: 9007199254740993n }, '{"n":["x",9007199254740992]}'),
      false,
    )
    assert.equal(
      selects({ path: "n", op: "eq", value: "9007199254740993", as: "number" }, '{"n":9007199254740993}'),
      true,
    )
    assert.equal(
      selects({ path: "n", op: "lt", value: "9007199254740993.5", as: "number" }, '{"n":9007199254740993}'),
      true,
    )
  })

  it("leaves out or delivers records of another codec and encrypted ones, by the policy", () => {
    const where: FilterExpression = { path: "a", op: "eq", value: 1 }
    const cbor = record('{"a":1}', { "millrace-ct": HeaderValue.uint8(3) })
    assert.deepEqual(verdict({ where }, cbor), {
      judgement: "rejected",
      reason: "foreign",
      detail: "header millrace-ct is 3, and the filter reads json",
    })
    assert.equal(verdict({ where, foreign: "pass" }, cbor).judgement, "selected")
    for (const code of [1, 9, 255])
      assert.equal(
        verdict({ where }, record('{"a":1}', { "millrace-ct": HeaderValue.uint8(code) })).judgement,
        "selected",
        String(code),
      )
    const sealed = new Uint8Array(60)
    sealed.set([0xfa, 0x4d, 0x45, 1])
    assert.equal(verdict({ where }, record(sealed)).reason, "encrypted")
    assert.equal(verdict({ where, foreign: "pass" }, record(sealed)).judgement, "selected")
    assert.equal(
      verdict({ where: { header: "h", op: "present" }, codec: "headersOnly" }, record(sealed, { h: "x" })).judgement,
      "selected",
    )
    // Its own headers are encrypted with it: only those that stand outside can be looked at.
    for (const hidden of [record(sealed, { h: "x" }), record(null, { h: "x", "millrace-sealed": "…" })]) {
      const looks = (header: string, op: "present" | "absent"): FilterVerdict =>
        verdict({ where: { header, op }, codec: "headersOnly" }, hidden)
      assert.equal(looks("h", "present").judgement, "selected")
      assert.deepEqual(looks("g", "absent"), {
        judgement: "rejected",
        reason: "encrypted",
        detail: "the headers are encrypted",
      })
    }
  })

  it("reads CBOR", () => {
    const payload = Uint8Array.of(0xa2, 0x61, 0x61, 0x1b, 0, 0x20, 0, 0, 0, 0, 0, 1, 0x61, 0x62, 0x82, 0x01, 0x61, 0x78)
    const filter = (where: FilterExpression): Filter => ({ where, codec: "cbor" })
    assert.equal(
      verdict(filter({ path: "a", op: "eq", value: 9007199254740993n }), record(payload)).judgement,
      "selected",
    )
    assert.equal(
      verdict(filter({ path: "b[1]", op: "equals", value: "X", caseInsensitive: true }), record(payload)).judgement,
      "selected",
    )
    assert.equal(verdict(filter({ path: "b", op: "contains", value: 1 }), record(payload)).judgement, "selected")
    assert.equal(verdict(filter({ path: "a", op: "present" }), record(Uint8Array.of(0xff))).judgement, "stopped")
  })

  it("finds no fields in a tombstone, and a fault in an empty payload", () => {
    assert.equal(verdict({ where: { path: "a", op: "absent" } }, record(null)).judgement, "selected")
    assert.deepEqual(verdict({ where: { path: "a", op: "eq", value: 1 } }, record(null)), { judgement: "rejected" })
    assert.equal(verdict({ where: { path: "a", op: "absent" } }, record("")).reason, "malformed")
  })

  it("stops, passes or drops what does not decode, is too large, or costs too much", () => {
    const where: FilterExpression = { path: "a", op: "eq", value: 1 }
    for (const [payload, reason] of [
      ['{"a":', "malformed"],
      [Uint8Array.of(0x22, 0xff, 0x22), "malformed"],
      [`"${"x".repeat((1 << 20) - 1)}"`, "too-large"],
    ] as const) {
      assert.equal(verdict({ where }, record(payload)).judgement, "stopped")
      assert.equal(verdict({ where }, record(payload)).reason, reason)
      assert.equal(verdict({ where, fault: "pass" }, record(payload)).judgement, "selected")
      assert.equal(verdict({ where, fault: "drop" }, record(payload)).judgement, "rejected")
    }
    assert.deepEqual(verdict({ where }, record(`"${"x".repeat((1 << 20) - 2)}"`)), { judgement: "rejected" })
    const costly: FilterExpression = { path: "a", op: "regex", value: "a{500}" }
    assert.equal(verdict({ where: costly }, record(JSON.stringify({ a: "a".repeat(200_000) }))).reason, "too-costly")
    assert.equal(verdict({ where: costly }, record(JSON.stringify({ a: "a".repeat(30_000) }))).judgement, "selected")
  })

  it("lets headers decide before the payload is looked at", () => {
    const untouched: RecordSource = {
      payload: () => {
        throw new Error("the payload was looked at")
      },
      headers: () => Headers.from({ kind: "order" }),
    }
    const path: FilterExpression = { path: "a", op: "eq", value: 1 }
    const judge = (where: FilterExpression): string => compileFilter(checkFilter({ where })).judge(untouched, 0)
    assert.equal(judge({ all: [path, { header: "kind", op: "eq", value: "other" }] }), "rejected")
    assert.equal(judge({ any: [path, { header: "kind", op: "glob", value: "ord*" }] }), "selected")
    assert.throws(() => judge({ all: [path, { header: "kind", op: "eq", value: "order" }] }), /was looked at/)
  })

  it("decodes a payload once, however many tests look at it", () => {
    let looks = 0
    const source: RecordSource = {
      payload: () => {
        looks++
        return utf8.encode('{"a":1,"b":2}')
      },
      headers: () => Headers.empty,
    }
    const where: FilterExpression = { all: ["a", "b", "a"].map((path) => ({ path, op: "present" }) as const) }
    assert.equal(compileFilter(checkFilter({ where })).judge(source, 0), "selected")
    assert.equal(looks, 1)
  })

  it("takes malformed headers for a fault, and damage for damage", () => {
    const broken = (error: Error): RecordSource => ({
      payload: () => utf8.encode("{}"),
      headers: () => {
        throw error
      },
    })
    const program = compileFilter(checkFilter({ where: { header: "h", op: "absent" }, codec: "headersOnly" }))
    assert.equal(program.judge(broken(new DecodeError("bad block")), 0), "stopped")
    assert.deepEqual(program.verdictAt(broken(new DecodeError("bad block")), 0), {
      judgement: "stopped",
      reason: "headers",
      detail: "bad block",
    })
    assert.throws(() => program.judge(broken(new CorruptionError("bad batch")), 0), { kind: "corruption" })
  })

  it("compares headers by their kinds, and bytes that are text as text", () => {
    const headers: [string, HeaderValue][] = [
      ["i", HeaderValue.int64(9007199254740993n)],
      ["f", HeaderValue.double(Number.NaN)],
      ["b", HeaderValue.bool(true)],
      ["r", HeaderValue.raw(utf8.encode("text"))],
      ["x", HeaderValue.raw(Uint8Array.of(0xff))],
      ["s", HeaderValue.string("first")],
      ["s", HeaderValue.string("second")],
    ]
    const found = (where: FilterExpression): string => {
      const { truth, unknown } = compileFilter(checkFilter({ where, codec: "headersOnly" })).explain(
        record(null, headers),
      ).root
      return unknown ?? String(truth)
    }
    assert.equal(found({ header: "i", op: "eq", value: 9007199254740993n }), "true")
    assert.equal(found({ header: "i", op: "gt", value: 9007199254740992n }), "true")
    assert.equal(found({ header: "f", op: "eq", value: 1 }), "undefined")
    assert.equal(found({ header: "b", op: "eq", value: true }), "true")
    assert.equal(found({ header: "r", op: "suffix", value: "xt" }), "true")
    assert.equal(found({ header: "x", op: "eq", value: "x" }), "mismatch")
    assert.equal(found({ header: "x", op: "present" }), "true")
    assert.equal(found({ header: "s", op: "eq", value: "first" }), "true")
    assert.equal(found({ header: "S", op: "absent" }), "true")
  })

  it("explains what each part found", () => {
    const where: FilterExpression = {
      any: [
        { path: "a", op: "gt", value: 3 },
        { not: { path: "b", op: "eq", value: "x" } },
        { header: "h", op: "present" },
      ],
    }
    assert.deepEqual(compileFilter(checkFilter({ where })).explain(record('{"a":"4"}')), {
      judgement: "rejected",
      reason: "mismatch",
      detail: "a value has a type that its test cannot compare",
      root: {
        node: "filter.where",
        truth: undefined,
        unknown: "mismatch",
        children: [
          { node: "filter.where.any[0]", truth: undefined, unknown: "mismatch" },
          {
            node: "filter.where.any[1]",
            truth: undefined,
            children: [{ node: "filter.where.any[1].not", truth: undefined }],
          },
          { node: "filter.where.any[2]", truth: false },
        ],
      },
    })
  })
})
