/** Random filters and records. */
import fc from "fast-check"
import type { FilterExpression, FilterScalar } from "./filter.ts"

const paths = fc.constantFrom("a", "b", "a.b", "l", "l[0]", "missing", "t")
const places = fc.oneof(
  paths.map((path) => ({ path })),
  fc.constantFrom("h", "n", "gone").map((header) => ({ header })),
)
const numbers = fc.constantFrom<number | bigint>(0, 1, -1, 1.5, 10, 2 ** 53 - 1, 9007199254740993n, -9007199254740993n)
const texts = fc.constantFrom("", "a", "A", "ab", "b", "1", "1.50", "10", "1970-01-01T00:00:01Z", "é", "É")
const scalars: fc.Arbitrary<FilterScalar> = fc.oneof(numbers, texts, fc.boolean(), fc.constant(null))
const times = fc.constantFrom<string | number>("1970-01-01T00:00:01Z", 1, 10)
const coerced = fc.oneof(
  fc.record({ value: fc.oneof(numbers, fc.constantFrom("1", "1.50", "10")), as: fc.constant("number" as const) }),
  fc.record({
    value: times,
    as: fc.constantFrom("epochSeconds" as const, "epochMillis" as const, "epochMicros" as const),
  }),
  fc.record({ value: fc.constant("1970-01-01T00:00:01Z"), as: fc.constant("rfc3339" as const) }),
)
const folding = fc.option(fc.constant({ caseInsensitive: true }), { nil: {} })

const tests = fc.tuple(
  places,
  fc.oneof(
    fc.record({ op: fc.constantFrom("eq" as const, "ne" as const), value: scalars }),
    fc.record({
      op: fc.constantFrom("lt" as const, "lte" as const, "gt" as const, "gte" as const),
      value: fc.oneof(numbers, texts),
    }),
    fc
      .tuple(
        fc.constantFrom("eq" as const, "ne" as const, "lt" as const, "lte" as const, "gt" as const, "gte" as const),
        coerced,
      )
      .map(([op, rest]) => ({ op, ...rest })),
    fc.record({ op: fc.constant("in" as const), value: fc.array(scalars, { minLength: 1, maxLength: 4 }) }),
    coerced.map(({ value, as }) => ({ op: "in" as const, value: [value], as })),
    fc.record({ op: fc.constant("contains" as const), value: scalars }),
    fc
      .tuple(
        fc.constantFrom("equals" as const, "prefix" as const, "suffix" as const, "contains" as const),
        texts,
        folding,
      )
      .map(([op, value, fold]) => ({ op, value, ...fold })),
    fc.record({ op: fc.constantFrom("present" as const, "absent" as const) }),
  ),
)

/** Tests and operators over the fields that `payloads` has and the headers that `headerLists` has. */
export const expressions: fc.Arbitrary<FilterExpression> = fc.letrec<{ expression: FilterExpression }>((tie) => ({
  expression: fc.oneof(
    { maxDepth: 4, depthSize: "small" },
    tests.map(([place, test]) => ({ ...place, ...test }) as FilterExpression),
    fc.array(tie("expression"), { minLength: 1, maxLength: 3 }).map((all) => ({ all })),
    fc.array(tie("expression"), { minLength: 1, maxLength: 3 }).map((any) => ({ any })),
    tie("expression").map((not) => ({ not })),
  ),
})).expression

const values = fc.oneof(
  numbers.map(String),
  texts.map((text) => JSON.stringify(text)),
  fc.constantFrom("true", "false", "null", "1e400", "[]", '["a",1,null]', "[9007199254740993]", "{}"),
)

/** JSON texts, some of them malformed. */
export const payloads: fc.Arbitrary<string> = fc.oneof(
  {
    weight: 9,
    arbitrary: fc.tuple(values, values, values, values).map(([a, b, l, t]) => `{"a":${a},"b":${b},"l":${l},"t":${t}}`),
  },
  { weight: 2, arbitrary: fc.tuple(values, values).map(([b, l]) => `{"a":{"b":${b}},"l":[${l}]}`) },
  { weight: 1, arbitrary: fc.constantFrom('{"a":1', "", "[1]", "\ufffe", "null") },
)

/** Header `h` is text, `n` a number; `gone` is never there. */
export const headerLists: fc.Arbitrary<readonly { readonly name: string; readonly value: string | number }[]> = fc
  .tuple(fc.option(texts, { nil: undefined }), fc.option(fc.constantFrom(0, 1, 10), { nil: undefined }))
  .map(([h, n]) => [
    ...(h === undefined ? [] : [{ name: "h", value: h }]),
    ...(n === undefined ? [] : [{ name: "n", value: n }]),
  ])
