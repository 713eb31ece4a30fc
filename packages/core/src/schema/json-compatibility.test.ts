/** Whether a JSON Schema takes all that another lets through: what is said to be so has to be so, for the validator's values. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { Ajv } from "ajv"
import fc from "fast-check"
import { jsonSchemaFormat } from "./json-schema-format.ts"
import type { Reason } from "./schema-format.ts"

const resolved = (schema: unknown, dependencies: readonly { name: string; schema: string }[] = []) => ({
  type: "json-schema" as const,
  schema: JSON.stringify(schema),
  dependencies,
})
const reasons = (reader: unknown, writer: unknown): Reason[] =>
  jsonSchemaFormat.incompatibilities(resolved(reader), resolved(writer))
const fits = (reader: unknown, writer: unknown): boolean => reasons(reader, writer).length === 0
const paths = (reader: unknown, writer: unknown): string[] => reasons(reader, writer).map(({ path }) => path)

const closed = (properties: object, more: object = {}) => ({
  type: "object",
  properties,
  additionalProperties: false,
  ...more,
})

describe("properties", () => {
  test("added to a closed schema: optional ones can be read, required ones cannot", () => {
    const writer = closed({ id: { type: "string" } })
    assert.ok(fits(closed({ id: { type: "string" }, note: { type: "string" } }), writer))
    assert.deepEqual(paths(closed({ id: { type: "string" }, note: {} }, { required: ["note"] }), writer), ["required"])
  })

  test("added to an open schema, which may have written anything under the name", () => {
    const writer = { type: "object", properties: { id: { type: "string" } } }
    const [reason] = reasons(
      { type: "object", properties: { id: { type: "string" }, note: { type: "string" } } },
      writer,
    )
    assert.equal(reason?.path, "properties/note")
    assert.match(reason?.message ?? "", /anything/)
    assert.ok(fits({ type: "object", properties: { id: { type: "string" }, note: {} } }, writer))
  })

  test("removed: an open reader takes them, a closed one does not", () => {
    const writer = closed({ id: { type: "string" }, note: { type: "string" } })
    assert.ok(fits({ type: "object", properties: { id: { type: "string" } } }, writer))
    assert.match(reasons(closed({ id: { type: "string" } }), writer)[0]?.message ?? "", /"note"/)
  })

  test("no longer required by the reader, or by the writer", () => {
    const required = closed({ id: {} }, { required: ["id"] })
    assert.ok(fits(closed({ id: {} }), required))
    assert.deepEqual(paths(required, closed({ id: {} })), ["required"])
  })

  test("types: wider is read, narrower is not, and the path leads to it", () => {
    const of = (type: unknown) => closed({ a: closed({ b: { type } }) })
    assert.ok(fits(of("number"), of("integer")))
    assert.ok(fits(of(["string", "null"]), of("string")))
    assert.deepEqual(paths(of("integer"), of("number")), ["properties/a/properties/b/type"])
    assert.deepEqual(paths(of("string"), of(["string", "null"])), ["properties/a/properties/b/type"])
  })

  test("patterns and additional properties", () => {
    const writer = {
      type: "object",
      patternProperties: { "^x-": { type: "string" } },
      additionalProperties: { type: "integer" },
    }
    assert.ok(
      fits(
        { type: "object", patternProperties: { "^x-": { type: "string" } }, additionalProperties: { type: "number" } },
        writer,
      ),
    )
    assert.ok(!fits({ type: "object", additionalProperties: { type: "number" } }, writer))
    assert.ok(fits({ type: "object", properties: { n: { type: "number" } } }, writer))
    assert.ok(!fits({ type: "object", properties: { "x-n": { type: "number" } } }, writer))
    assert.ok(fits({ type: "object", properties: { "": {} } }, true) === false)
  })

  test("a name that means something to JavaScript is a name", () => {
    const proto = JSON.parse(
      '{"type":"object","properties":{"__proto__":{"type":"string"}},"required":["constructor"]}',
    )
    assert.ok(!fits(proto, { type: "object" }))
    assert.ok(fits(proto, proto))
  })
})

describe("other keywords", () => {
  const cases: readonly (readonly [reader: unknown, writer: unknown, fits: boolean])[] = [
    [{ enum: [1, "a"] }, { enum: ["a"] }, true],
    [{ enum: ["a"] }, { enum: [1, "a"] }, false],
    [{ enum: ["a"] }, { const: "a" }, true],
    [{ type: "string" }, { enum: ["a", "b"] }, true],
    [{ const: { a: [1] } }, { const: { a: [1] } }, true],
    [{ minimum: 1 }, { type: "integer", minimum: 2 }, true],
    [{ minimum: 2 }, { type: "integer", minimum: 1 }, false],
    [{ minimum: 0 }, { type: "integer" }, false],
    [{ minLength: 0 }, { type: "string" }, true],
    [{ minimum: 2 }, { type: "string" }, true],
    [{ exclusiveMinimum: 1 }, { type: "number", minimum: 1 }, false],
    [{ minimum: 1 }, { type: "number", exclusiveMinimum: 1 }, true],
    [{ maxLength: 5 }, { type: "string", maxLength: 4 }, true],
    [{ maxLength: 5 }, { type: "string" }, false],
    [{ multipleOf: 2 }, { type: "integer", multipleOf: 4 }, true],
    [{ multipleOf: 4 }, { type: "integer", multipleOf: 2 }, false],
    [{ pattern: "^a" }, { type: "string", pattern: "^a" }, true],
    [{ pattern: "^a" }, { type: "string", pattern: "^ab" }, false],
    [{ uniqueItems: true }, { type: "array" }, false],
    [{ uniqueItems: false }, { type: "array" }, true],
    [{ items: { type: "number" } }, { type: "array", items: { type: "integer" } }, true],
    [{ items: { type: "number" } }, { type: "array" }, false],
    [{ items: [{ type: "number" }] }, { type: "array", items: [{ type: "integer" }, { type: "string" }] }, true],
    [
      { items: [{}, { type: "number" }], additionalItems: false },
      { type: "array", items: [{}], additionalItems: { type: "integer" }, maxItems: 2 },
      true,
    ],
    [
      { items: [{}], additionalItems: false },
      { type: "array", items: [{}], additionalItems: { type: "integer" } },
      false,
    ],
    [{ not: { type: "string" } }, { type: "integer" }, false],
    [{ not: { const: "a" } }, { not: { enum: ["a", "b"] } }, true],
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, { type: ["string", "null"] }, true],
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, { type: ["string", "integer"] }, false],
    [{ type: ["string", "null"] }, { anyOf: [{ type: "string" }, { type: "null" }] }, true],
    [
      { anyOf: [{ type: "string" }, { type: "number" }, { type: "null" }] },
      { oneOf: [{ type: "integer" }, { type: "null" }] },
      true,
    ],
    [{ oneOf: [{ type: "string" }, { type: "number" }] }, { type: "string" }, true],
    [{ oneOf: [{ type: "string" }, { maxLength: 3 }] }, { type: "string" }, false],
    [{ allOf: [{ minimum: 1 }, { maximum: 9 }] }, { type: "number", minimum: 2, maximum: 3 }, true],
    [{ type: "number", minimum: 1, maximum: 9 }, { allOf: [{ type: "integer", minimum: 2 }, { maximum: 3 }] }, true],
    [{ dependentRequired: { a: ["b"] } }, { type: "object" }, false],
    [{ title: "new", description: "new", default: 1 }, { type: "string" }, true],
    [{}, { type: "string" }, true],
    [true, {}, true],
    [false, {}, false],
    [{ type: "string" }, false, true],
    [{ type: "string" }, true, false],
  ]
  for (const [reader, writer, expected] of cases) {
    test(`${JSON.stringify(writer)} as ${JSON.stringify(reader)}`, () => {
      assert.equal(fits(reader, writer), expected, JSON.stringify(reasons(reader, writer)))
    })
  }

  test("what cannot be judged is told as such, unless both have it", () => {
    const conditional = JSON.parse('{"type":"string","if":{"const":"a"},"then":{"minLength":1}}')
    assert.match(
      reasons(conditional, { type: "string" })
        .map(({ message }) => message)
        .join(),
      /cannot be judged/,
    )
    assert.ok(fits(conditional, conditional))
    assert.ok(!fits({ type: "string", "x-mine": 1 }, { type: "string" }))
    assert.ok(fits({ type: "string", "x-mine": 1 }, { type: "string", "x-mine": 1 }))
  })
})

describe("tagged unions", () => {
  const branch = (kind: string, more: object = {}) => closed({ kind: { const: kind }, ...more }, { required: ["kind"] })

  test("a branch is added to oneOf: old data is read, new data is not", () => {
    const one = { oneOf: [branch("a"), branch("b")] }
    const two = { oneOf: [branch("a"), branch("b"), branch("c")] }
    assert.ok(fits(two, one))
    assert.ok(!fits(one, two))
  })
})

describe("references", () => {
  const tree = (type: string) => ({
    $defs: { node: closed({ value: { type }, children: { type: "array", items: { $ref: "#/$defs/node" } } }) },
    $ref: "#/$defs/node",
  })

  test("are followed, around circles too", () => {
    assert.ok(fits(tree("number"), tree("integer")))
    assert.deepEqual(paths(tree("integer"), tree("number")), ["properties/value/type"])
  })

  test("what was taken to hold further up, and does not, is not remembered", () => {
    // The reader's A does not take the writer's, for its x; B holds an A, and is first looked at within A. The other branch takes the A.
    const definitions = (type: string): object => ({
      A: closed({ b: { $ref: "#/definitions/B" }, x: { type } }),
      B: closed({ a: { $ref: "#/definitions/A" } }),
    })
    const root = (u: object, type: string): object => ({
      ...closed({ u, b: { $ref: "#/definitions/B" } }),
      definitions: definitions(type),
    })
    const own = closed({ a: { $ref: "#/definitions/A" } })
    const either = { anyOf: [own, closed({ a: {} })] }
    const writer = root(own, "string")
    assert.ok(!fits(root(either, "integer"), writer))
    assert.ok(fits(root(either, "string"), writer))
  })

  test("to other documents, by the name of the reference or by their id", () => {
    const name = (type: string) => [
      { name: "name.json", schema: JSON.stringify({ type }) },
      {
        name: "other.json",
        schema: JSON.stringify({ $id: "https://example.com/other.json", $defs: { "a/b": { type } } }),
      },
    ]
    const main = {
      $id: "https://example.com/main.json",
      allOf: [{ $ref: "name.json" }, { $ref: "other.json#/$defs/a~1b" }],
    }
    const judge = (reader: string, writer: string): number =>
      jsonSchemaFormat.incompatibilities(resolved(main, name(reader)), resolved(main, name(writer))).length
    assert.equal(judge("number", "integer"), 0)
    assert.ok(judge("integer", "number") > 0)
  })

  test("that lead in a circle, and schemas that are too entangled, end", () => {
    const circle = { $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" }
    assert.equal(fits(circle, { type: "string" }), false)
    const own = { $defs: { a: { allOf: [{ $ref: "#/$defs/a" }] } }, $ref: "#/$defs/a" }
    assert.equal(fits(own, own), false)
    const many = {
      anyOf: Array.from({ length: 200 }, (_, index) =>
        closed({ [`p${index}`]: { anyOf: [{ minimum: index }, { type: "string" }] } }),
      ),
    }
    assert.equal(typeof fits(many, { ...many, title: "x" }), "boolean")
  })
})

test("what is said to fit does fit: no value of the writer is refused by the reader", () => {
  const ajv = new Ajv({ strict: false, logger: false })
  const leaf = fc.constantFrom<unknown>(0, 1, 2, 5, -1, 1.5, "", "a", "ab", "x-", null, true, false)
  const { value, schema } = fc.letrec<{ value: unknown; schema: object | boolean }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 2 },
      leaf,
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom("a", "b", "x-c"), tie("value"), { maxKeys: 3 }),
    ),
    schema: fc.oneof(
      { maxDepth: 3 },
      fc.boolean(),
      fc.record({ type: fc.constantFrom("string", "integer", "number", "null", "boolean", "object", "array") }),
      fc.record({ type: fc.subarray(["string", "integer", "number", "null", "object"], { minLength: 1 }) }),
      fc.record({ enum: fc.uniqueArray(leaf, { minLength: 1, maxLength: 3 }) }),
      fc.record({ const: leaf }),
      fc.record(
        {
          minimum: fc.constantFrom(0, 1, 2),
          maximum: fc.constantFrom(1, 2, 5),
          exclusiveMinimum: fc.constantFrom(0, 1),
          multipleOf: fc.constantFrom(1, 2),
          minLength: fc.constantFrom(0, 1),
          maxLength: fc.constantFrom(0, 1, 2),
          pattern: fc.constantFrom("^a", "b$"),
        },
        { requiredKeys: [] },
      ),
      fc.record(
        {
          type: fc.constant("object"),
          properties: fc.dictionary(fc.constantFrom("a", "b", "x-c"), tie("schema"), { maxKeys: 2 }),
          patternProperties: fc.dictionary(fc.constantFrom("^x-", "b"), tie("schema"), { maxKeys: 1 }),
          additionalProperties: tie("schema"),
          required: fc.subarray(["a", "b"]),
          minProperties: fc.constantFrom(0, 1, 2),
          maxProperties: fc.constantFrom(1, 2),
          propertyNames: tie("schema"),
        },
        { requiredKeys: [] },
      ),
      fc.record(
        {
          type: fc.constant("array"),
          items: fc.oneof(tie("schema"), fc.array(tie("schema"), { minLength: 1, maxLength: 2 })),
          additionalItems: tie("schema"),
          minItems: fc.constantFrom(0, 1),
          maxItems: fc.constantFrom(0, 1, 2),
          uniqueItems: fc.boolean(),
          contains: tie("schema"),
        },
        { requiredKeys: [] },
      ),
      fc.record({ anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
      fc.record({ oneOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
      fc.record({ allOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
      fc.record({ not: tie("schema") }),
      fc.record({
        type: fc.constantFrom("object", "string"),
        anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
      }),
    ),
  }))
  /** Pairs that have a chance: one schema, and the same with a part left out or replaced. */
  const pair = fc.oneof(
    fc.tuple(schema, schema),
    fc.tuple(schema, schema).map(([a, b]): [unknown, unknown] => [{ anyOf: [a, b] }, b]),
    fc.tuple(schema, schema).map(([a, b]): [unknown, unknown] => [a, { allOf: [a, b] }]),
    fc.tuple(schema, schema, schema).map(([a, b, c]): [unknown, unknown] => [{ oneOf: [a, b] }, { oneOf: [a, c] }]),
  )
  let fitting = 0
  fc.assert(
    fc.property(pair, fc.array(value, { minLength: 20, maxLength: 20 }), ([reader, writer], values) => {
      if (!fits(reader, writer)) return
      fitting++
      const accepts = ajv.compile(reader as object)
      const writes = ajv.compile(writer as object)
      for (const candidate of JSON.parse(JSON.stringify(values))) {
        if (writes(candidate)) assert.ok(accepts(candidate), JSON.stringify({ candidate, reader, writer }))
      }
    }),
    { numRuns: process.env.MILLRACE_LONG === "1" ? 5000 : 250 },
  )
  assert.ok(fitting > 10, `${fitting} pairs fit`)
})
