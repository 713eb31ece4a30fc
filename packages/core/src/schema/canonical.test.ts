/** When two schemas are the same. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { schemaHash, schemaText } from "./canonical.ts"
import { protobufTokens } from "./protobuf-tokens.ts"
import type { SchemaInit } from "./schema.ts"

const hash = (init: SchemaInit): string => schemaHash(schemaText(init))
const json = (schema: SchemaInit["schema"]): string => hash({ type: "json-schema", schema })
const protobuf = (schema: string): string => hash({ type: "protobuf", schema })

test("JSON: layout and the order of keys do not count, the order of lists and everything else does", () => {
  assert.equal(json('{"a":[1,2],"b":{"c":null,"d":1}}'), json('{\n "b": {"d": 1, "c": null}, "a": [1, 2]}'))
  assert.equal(json({ b: 1, a: 2 }), json('{"a":2,"b":1}'))
  assert.notEqual(json('{"a":[1,2]}'), json('{"a":[2,1]}'))
  assert.notEqual(json('{"a":1}'), json('{"a":"1"}'))
  assert.notEqual(json('{"description":"one"}'), json('{"description":"two"}'))
  assert.notEqual(hash({ type: "avro", schema: '"int"' }), json('"int"'))
  assert.equal(hash({ type: "avro", schema: "int" }), hash({ type: "avro", schema: '"int"' }))
})

test("JSON: numbers that a double does not hold stay apart", () => {
  assert.notEqual(json('{"maximum":9007199254740993}'), json('{"maximum":9007199254740992}'))
  assert.notEqual(json('{"maximum":1e400}'), json('{"maximum":1e500}'))
})

test("JSON: keys that mean something to JavaScript are keys", () => {
  assert.notEqual(json('{"properties":{"__proto__":{"type":"string"}}}'), json('{"properties":{}}'))
  assert.equal(({} as Record<string, unknown>).type, undefined)
})

test("JSON: any value is the same as itself with its keys in another order", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
      const reversed = (part: unknown): unknown => {
        if (Array.isArray(part)) return part.map(reversed)
        if (typeof part !== "object" || part === null) return part
        return Object.fromEntries(
          Object.entries(part)
            .reverse()
            .map(([key, inner]) => [key, reversed(inner)]),
        )
      }
      assert.equal(json(JSON.stringify({ value })), json(JSON.stringify({ value: reversed(value) }, null, 3)))
    }),
  )
})

test("Protobuf: comments and layout do not count, what is in strings does", () => {
  const plain = 'syntax = "proto3"; message A { string b = 1; }'
  assert.equal(protobuf(plain), protobuf(`// of ours\nsyntax="proto3";\n\nmessage A{\n  /* b */ string b=1; // it\n}`))
  assert.notEqual(protobuf(plain), protobuf(plain.replace("= 1", "= 11")))
  assert.deepEqual(protobufTokens(`option a = "// \\" no /* comment";`), [
    "option",
    "a",
    "=",
    `"// \\" no /* comment"`,
    ";",
  ])
  assert.notEqual(protobuf("message A { ab c = 1; }"), protobuf("message A { a bc = 1; }"))
  for (const text of ['a = "b', "/* a", "'b\n'"]) assert.throws(() => protobufTokens(text), InvalidError)
})

test("the order of references does not count, what they say does", () => {
  const a = { name: "A", subject: "a", version: 1 }
  const b = { name: "B", subject: "b", version: 2 }
  const of = (references: SchemaInit["references"]): string =>
    hash({ type: "avro", schema: "int", ...(references && { references }) })
  assert.equal(of([a, b]), of([b, a]))
  assert.equal(of([]), of(undefined))
  assert.notEqual(of([a]), of([{ ...a, version: 2 }]))
  assert.notEqual(of([a]), of([{ ...a, subject: "b" }]))
  assert.throws(() => of([a, a]), /"A".*twice/)
})
