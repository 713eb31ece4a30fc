import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError, InvalidError } from "@millrace/contract"
import { Ajv } from "ajv"
import { jsonSchema } from "./json-schema.ts"

const order = {
  type: "object",
  properties: {
    id: { type: "integer" },
    at: { type: "string", format: "date-time" },
    tags: { type: "array", items: { type: "string" } },
  },
  required: ["id"],
  additionalProperties: false,
}
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

describe("JsonSchema", () => {
  test("takes what fits, in both directions", () => {
    const codec = jsonSchema<{ id: number; tags?: string[]; at?: unknown }>(order)
    assert.deepEqual(codec.encode({ id: 1, tags: ["a"] }), bytes('{"id":1,"tags":["a"]}'))
    assert.deepEqual(codec.decode(bytes('{"id":1}')), { id: 1 })
    assert.deepEqual(codec.encode({ id: 1, at: new Date(0) }), bytes('{"id":1,"at":"1970-01-01T00:00:00.000Z"}'))
  })

  test("lists every misfit with its path", () => {
    const codec = jsonSchema<unknown>(order)
    assert.throws(
      () => codec.encode({ id: "x", tags: ["a", 5], other: 1 }),
      (error) =>
        error instanceof InvalidError &&
        /additional properties/.test(error.message) &&
        /value\/id must be integer/.test(error.message) &&
        /value\/tags\/1 must be string/.test(error.message),
    )
    assert.throws(
      () => codec.decode(bytes('{"id":null}')),
      (error) => error instanceof DecodeError && /value\/id must be integer/.test(error.message),
    )
    const many = jsonSchema<number[]>({ type: "array", items: { type: "string" } })
    assert.throws(() => many.encode(new Array(1000).fill(5)), /value\/9 must be string, and 990 more$/)
  })

  test("knows the draft that the schema names", () => {
    const tuple = { type: "array", prefixItems: [{ type: "string" }] }
    const latest = jsonSchema<unknown>({ $schema: "https://json-schema.org/draft/2020-12/schema", ...tuple })
    assert.throws(() => latest.encode([5]), /value\/0 must be string/)
    jsonSchema<unknown>({ $schema: "http://json-schema.org/draft-07/schema#", ...tuple }).encode([5])
    jsonSchema<unknown>({ $schema: "https://json-schema.org/draft/2019-09/schema", $defs: {} }).encode([5])
    assert.throws(
      () => jsonSchema({ $schema: "http://json-schema.org/draft-04/schema#" }),
      /known are draft-07, 2019-09 and 2020-12/,
    )
  })

  test("finds what it refers to among the references, and nowhere else", () => {
    const user = { $ref: "https://shop/name" }
    const codec = jsonSchema<unknown>(user, { references: [{ name: "https://shop/name", schema: { type: "string" } }] })
    assert.throws(() => codec.encode(5), /must be string/)
    assert.throws(() => jsonSchema(user), /can't resolve reference https:\/\/shop\/name/)
  })

  test("uses a validator of the user's own", () => {
    const ajv = new Ajv({ formats: { even: { type: "number", validate: (value: number) => value % 2 === 0 } } })
    const codec = jsonSchema<number>({ type: "number", format: "even" }, { ajv })
    assert.throws(() => codec.encode(3), /format "even"/)
  })

  test("two schemas of one $id do not meet", () => {
    const one = jsonSchema<unknown>({ $id: "https://shop/one", type: "string" })
    const other = jsonSchema<unknown>({ $id: "https://shop/one", type: "number" })
    assert.throws(() => one.encode(5))
    other.encode(5)
  })

  test("refuses what is no schema, and one that answers later", () => {
    for (const schema of [{ type: "nope" }, null, 5, "x"])
      assert.throws(() => jsonSchema(schema as never), InvalidError)
    assert.throws(() => jsonSchema({ $async: true, type: "object" }), /asynchronously/)
    assert.throws(() => jsonSchema({}, { formats: {} } as never), /unknown option "formats"/)
    jsonSchema(true).encode(5)
    assert.throws(() => jsonSchema<unknown>(false).encode(5), /boolean schema is false/)
  })

  test("what has no JSON is refused before the schema is asked", () => {
    for (const value of [Number.NaN, 5n, undefined, new Map()])
      assert.throws(() => jsonSchema<unknown>({}).encode(value), /JSON has no form/)
    assert.throws(() => jsonSchema({}).decode(bytes("{")), SyntaxError)
  })
})
