/** Avro's rules of schema resolution: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { avscType } from "../codec/avro-library.ts"
import { avroFormat } from "./avro-format.ts"
import type { Reason } from "./schema-format.ts"

const resolved = (schema: unknown) => ({ type: "avro" as const, schema: JSON.stringify(schema), dependencies: [] })
const reasons = (reader: unknown, writer: unknown): Reason[] =>
  avroFormat.incompatibilities(resolved(reader), resolved(writer))
const paths = (reader: unknown, writer: unknown): string[] => reasons(reader, writer).map(({ path }) => path)
const record = (name: string, fields: readonly object[], more: object = {}) => ({
  type: "record",
  name,
  fields,
  ...more,
})

describe("rules of the specification", () => {
  test("promotions", () => {
    const types = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
    const promoted = new Set([
      "int>long",
      "int>float",
      "int>double",
      "long>float",
      "long>double",
      "float>double",
      "string>bytes",
      "bytes>string",
    ])
    for (const writer of types) {
      for (const reader of types) {
        const readable = writer === reader || promoted.has(`${writer}>${reader}`)
        assert.equal(reasons(reader, writer).length === 0, readable, `${writer} as ${reader}`)
      }
    }
  })

  test("records: by name, fields by name or alias, defaults for what the writer lacks", () => {
    const writer = record("A", [
      { name: "x", type: "int" },
      { name: "gone", type: "string" },
    ])
    assert.deepEqual(paths(record("A", [{ name: "x", type: "long" }]), writer), [])
    assert.deepEqual(paths(record("A", [{ name: "y", type: "int", aliases: ["x"] }]), writer), [])
    assert.deepEqual(paths(record("A", [{ name: "n", type: "int" }]), writer), ["A.n"])
    assert.deepEqual(paths(record("A", [{ name: "n", type: ["null", "int"], default: null }]), writer), [])
    assert.deepEqual(paths(record("B", []), writer), ["B"])
    assert.deepEqual(paths(record("B", [], { aliases: ["A"] }), writer), [])
    assert.deepEqual(paths(record("A", [{ name: "y", type: "int", aliases: ["x", "gone"] }]), writer), ["A.y"])
  })

  test("enums, fixed, arrays and maps", () => {
    const symbols = (list: readonly string[], more: object = {}) => ({
      type: "enum",
      name: "E",
      symbols: list,
      ...more,
    })
    assert.equal(reasons(symbols(["A", "B"]), symbols(["A"])).length, 0)
    assert.match(reasons(symbols(["A"]), symbols(["A", "B", "C"]))[0]?.message ?? "", /B, C/)
    assert.equal(reasons(symbols(["A"], { default: "A" }), symbols(["A", "B"])).length, 0)
    assert.match(
      reasons({ type: "fixed", name: "F", size: 4 }, { type: "fixed", name: "F", size: 8 })[0]?.message ?? "",
      /8.*4/,
    )
    assert.deepEqual(paths({ type: "array", items: "int" }, { type: "array", items: "string" }), ["[]"])
    assert.deepEqual(
      paths(
        { type: "map", values: { type: "array", items: "int" } },
        { type: "map", values: { type: "array", items: "long" } },
      ),
      ["{}[]"],
    )
  })

  test("unions: each branch of the writer, some branch of the reader", () => {
    assert.equal(reasons(["null", "string"], "string").length, 0)
    assert.equal(reasons(["null", "long"], ["int", "null"]).length, 0)
    assert.equal(reasons("string", ["null", "string"]).length, 1)
    assert.equal(reasons("string", ["string"]).length, 0)
    assert.equal(reasons(["null", "int"], "string").length, 1)
    const inner = (type: string) => ["null", record("A", [{ name: "x", type }])]
    assert.deepEqual(paths(inner("int"), inner("string")), ["A.x"])
  })

  test("every reason is told, each once, with the record that it is in", () => {
    const address = (zip: string) => record("Address", [{ name: "zip", type: zip }])
    const person = (zip: string, extra: readonly object[]) =>
      record("Person", [{ name: "home", type: address(zip) }, { name: "work", type: ["null", "Address"] }, ...extra])
    assert.deepEqual(paths(person("int", [{ name: "age", type: "int" }]), person("string", [])), [
      "Address.zip",
      "Person.age",
    ])
  })

  test("logical types are read as what they are made of", () => {
    assert.equal(reasons({ type: "long", logicalType: "timestamp-millis" }, "int").length, 0)
    assert.equal(reasons("long", { type: "long", logicalType: "timestamp-micros" }).length, 0)
  })
})

describe("schemas that contain themselves", () => {
  const list = (type: string, name = "List") =>
    record(name, [
      { name: "value", type },
      { name: "next", type: ["null", name] },
    ])

  test("are compared to their end", () => {
    assert.deepEqual(paths(list("long"), list("int")), [])
    assert.deepEqual(paths(list("int"), list("long")), ["List.value"])
  })

  test("what was taken for readable further up, and is not, does not stay so", () => {
    // The reader's A cannot read the writer's, for its x; its B holds an A, and is first looked at within A. The alias reads it in place of A.
    const b = record("B", [{ name: "a", type: ["null", "A"] }])
    const writer = record("T", [
      {
        name: "u",
        type: record("A", [
          { name: "b", type: b },
          { name: "x", type: "string" },
        ]),
      },
      { name: "b", type: "B" },
    ])
    const other = record("Other", [{ name: "x", type: "string" }], { aliases: ["A"] })
    const reader = record("T", [
      {
        name: "u",
        type: [
          record("A", [
            { name: "b", type: b },
            { name: "x", type: "int" },
          ]),
          other,
        ],
      },
      { name: "b", type: "B" },
    ])
    assert.deepEqual(paths(reader, writer), ["A.x"])
  })

  test("many types that use each other twice are compared in no time", () => {
    const nested = (depth: number, leaf: string): object => {
      let type: unknown = leaf
      let schema: object = record("R0", [{ name: "l", type }])
      for (let level = 1; level <= depth; level++) {
        type = schema
        schema = record(`R${level}`, [
          { name: "a", type },
          { name: "b", type: `R${level - 1}` },
        ])
      }
      return schema
    }
    assert.deepEqual(paths(nested(60, "int"), nested(60, "string")), ["R0.l"])
    assert.deepEqual(paths(nested(60, "long"), nested(60, "int")), [])
  })
})

test("the answer is that of the library's resolver, whatever the schemas", () => {
  const primitive = fc.constantFrom("null", "boolean", "int", "long", "float", "double", "string", "bytes")
  const names = fc.constantFrom("x", "y", "z")
  const { schema } = fc.letrec<{ schema: unknown; union: unknown }>((tie) => ({
    schema: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      primitive,
      fc.record({ type: fc.constant("array"), items: tie("schema") }),
      fc.record({ type: fc.constant("map"), values: tie("schema") }),
      fc.record({
        type: fc.constant("enum"),
        name: fc.constantFrom("E", "F"),
        symbols: fc.uniqueArray(fc.constantFrom("A", "B", "C"), { minLength: 1 }),
      }),
      fc.record({ type: fc.constant("fixed"), name: fc.constantFrom("P", "Q"), size: fc.integer({ min: 1, max: 2 }) }),
      tie("union"),
      fc
        .tuple(
          fc.constantFrom("A", "B", "C"),
          fc.uniqueArray(fc.tuple(names, tie("schema"), fc.boolean()), { selector: ([name]) => name, maxLength: 3 }),
        )
        .map(([name, fields]) =>
          record(
            name,
            fields.map(([field, type, optional]) =>
              optional
                ? { name: field, type: ["null", { type: "array", items: type }], default: null }
                : { name: field, type },
            ),
          ),
        ),
    ),
    union: fc.uniqueArray(tie("schema"), { minLength: 1, maxLength: 3 }),
  }))
  let readable = 0
  let unreadable = 0
  fc.assert(
    fc.property(schema, schema, (reader, writer) => {
      let expected: boolean
      try {
        const types = [reader, writer].map((part) => avscType(JSON.parse(JSON.stringify(part)), {}))
        try {
          types[0]?.createResolver(types[1] as never)
          expected = true
        } catch {
          expected = false
        }
      } catch {
        return
      }
      if (expected) readable++
      else unreadable++
      assert.equal(reasons(reader, writer).length === 0, expected)
    }),
    { numRuns: process.env.MILLRACE_LONG === "1" ? 20_000 : 800 },
  )
  assert.ok(readable > 5 && unreadable > 5, `${readable} readable, ${unreadable} not`)
})
