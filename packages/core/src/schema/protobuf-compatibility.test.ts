/** Protobuf schemas that read each other: https://protobuf.dev/programming-guides/proto3/#updating */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import { protobufFormat } from "./protobuf-format.ts"
import type { Reason, ResolvedSchema } from "./schema-format.ts"

const resolved = (schema: string, dependencies: ResolvedSchema["dependencies"] = []): ResolvedSchema => ({
  type: "protobuf",
  schema: `syntax = "proto3"; ${schema}`,
  dependencies,
})
const reasons = (reader: string, writer: string): Reason[] =>
  protobufFormat.incompatibilities(resolved(reader), resolved(writer))
const paths = (reader: string, writer: string): string[] => reasons(reader, writer).map(({ path }) => path)
const message = (fields: string): string => `message A { ${fields} }`

describe("types of a field", () => {
  const types = [
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "bool",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "float",
    "double",
    "string",
    "bytes",
    "E",
    "M",
  ]
  const widened = new Set([
    "int32>int64",
    "uint32>int64",
    "bool>int64",
    "E>int64",
    "uint32>uint64",
    "bool>uint64",
    "bool>int32",
    "E>int32",
    "bool>uint32",
    "sint32>sint64",
    "string>bytes",
    "M>bytes",
  ])
  const of = (type: string): string => `enum E { E0 = 0; } message M { int32 m = 1; } message A { ${type} f = 1; }`
  for (const writer of types) {
    test(`${writer} is read as ${types.filter((reader) => reader === writer || widened.has(`${writer}>${reader}`)).join(", ")}, and as nothing else`, () => {
      for (const reader of types) {
        const expected = reader === writer || widened.has(`${writer}>${reader}`) ? [] : ["A.f"]
        assert.deepEqual(paths(of(reader), of(writer)), expected, `${writer} as ${reader}`)
      }
    })
  }

  test("widenings keep every value, and what is refused does not: as the library reads it", () => {
    const codec = (type: string) => protobufFormat.codec(resolved(message(`${type} f = 1;`)), {})
    const read = (reader: string, writer: string, value: unknown): unknown =>
      (codec(reader).decode(codec(writer).encode({ f: value })) as { readonly f?: unknown }).f
    assert.equal(String(read("int64", "uint32", 4294967295)), "4294967295")
    assert.equal(String(read("int64", "int32", -5)), "-5")
    assert.notEqual(String(read("int32", "uint32", 4294967295)), "4294967295")
    assert.notEqual(String(read("sint32", "int32", 5)), "5")
  })
})

describe("fields and messages", () => {
  test("added and removed ones can be read; a message that is gone cannot", () => {
    assert.deepEqual(paths(message("int32 a = 1; int32 b = 2;"), message("int32 a = 1;")), [])
    assert.deepEqual(paths(message("int32 a = 1;"), message("int32 a = 1; int32 b = 2;")), [])
    assert.deepEqual(paths("message B { }", "message A { } message B { }"), ["A"])
    assert.deepEqual(paths("message B { message C { } }", "message B { message C { message D { } } }"), ["B.C.D"])
    assert.deepEqual(paths("package q; message A { }", "package p; message A { }"), ["p.A"])
  })

  test("a field may get another name, as data knows only its number", () => {
    assert.deepEqual(paths(message("int32 b = 1;"), message("int32 a = 1;")), [])
  })

  test("numbers and names that were reserved are not used again", () => {
    const writer = message('reserved 4, 6 to 9; reserved "gone"; int32 a = 1;')
    assert.deepEqual(paths(message("int32 x = 4; int32 y = 7; int32 gone = 10; int32 z = 5;"), writer), [
      "A.x",
      "A.y",
      "A.gone",
    ])
  })

  test("one value is read as the first of a list, a list not as one value", () => {
    assert.deepEqual(paths(message("repeated int32 a = 1;"), message("int32 a = 1;")), [])
    assert.match(reasons(message("int32 a = 1;"), message("repeated int32 a = 1;"))[0]?.message ?? "", /repeated/)
  })

  test("maps", () => {
    const of = (type: string): string => message(`map<${type}> m = 1;`)
    assert.deepEqual(paths(of("int64, int64"), of("int32, uint32")), [])
    assert.deepEqual(paths(of("int32, string"), of("int64, bytes")), ["A.m", "A.m"])
    assert.deepEqual(paths(message("repeated string m = 1;"), of("string, string")), ["A.m"])
  })

  test("messages within fields, around circles too, each reason once", () => {
    const node = (type: string): string => `message Node { ${type} value = 1; Node left = 2; Node right = 3; }`
    assert.deepEqual(paths(node("int32"), node("string")), ["Node.value"])
  })

  test("oneof: one field may move into one, two that the writer may set together may not", () => {
    const apart = message("int32 a = 1; int32 b = 2; int32 c = 3;")
    assert.deepEqual(paths(message("oneof o { int32 a = 1; } int32 b = 2;"), apart), [])
    assert.deepEqual(paths(message("oneof o { int32 a = 1; int32 b = 2; }"), apart), ["A.o"])
    assert.deepEqual(paths(message("oneof o { int32 a = 1; int32 n = 9; }"), apart), [])
    const together = message("oneof o { int32 a = 1; int32 b = 2; }")
    assert.deepEqual(paths(message("oneof p { int32 a = 1; int32 b = 2; int32 c = 3; }"), together), [])
    assert.deepEqual(paths(message("optional int32 a = 1; optional int32 b = 2;"), together), [])
  })

  test("enums: an open one keeps numbers that it does not know, a closed one does not", () => {
    const open = (values: string): string => `enum E { ${values} } message A { E e = 1; }`
    assert.deepEqual(paths(open("A0 = 0;"), open("A0 = 0; B = 1;")), [])
    const proto2 = (values: string) => ({
      ...resolved(""),
      schema: `syntax = "proto2"; enum E { ${values} } message A { optional E e = 1; }`,
    })
    const found = protobufFormat.incompatibilities(proto2("A0 = 0;"), proto2("A0 = 0; B = 1;"))
    assert.deepEqual(
      found.map(({ path }) => path),
      ["E"],
    )
    assert.match(found[0]?.message ?? "", /1 \(B\)/)
  })

  test("required fields of proto2", () => {
    const proto2 = (fields: string) => ({ ...resolved(""), schema: `syntax = "proto2"; message A { ${fields} }` })
    const judge = (reader: string, writer: string): number =>
      protobufFormat.incompatibilities(proto2(reader), proto2(writer)).length
    assert.equal(judge("required int32 a = 1;", ""), 1)
    assert.equal(judge("required int32 a = 1;", "optional int32 a = 1;"), 1)
    assert.equal(judge("optional int32 a = 1;", "required int32 a = 1;"), 0)
  })
})

describe("imports", () => {
  const money = {
    name: "shop/money.proto",
    schema: 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }',
  }

  test("are references by their path, or well-known", () => {
    const text =
      'package shop; import "shop/money.proto"; import "google/protobuf/timestamp.proto"; message Order { Money price = 1; google.protobuf.Timestamp at = 2; }'
    protobufFormat.check(resolved(text, [money]))
    assert.throws(
      () => protobufFormat.check(resolved(text)),
      (error) => error instanceof InvalidError && /shop\/money\.proto/.test(error.message),
    )
    assert.deepEqual(
      protobufFormat.incompatibilities(
        resolved(text, [money]),
        resolved(text, [{ ...money, schema: money.schema.replace("int64", "string") }]),
      ),
      [{ path: "shop.Money.cents", message: "the type is string, which cannot be read as int64" }],
    )
  })

  test("the first message is the first of the file itself", () => {
    const text =
      'package shop; import "shop/money.proto"; message Order { Money price = 1; message Line { } } message Return { }'
    assert.deepEqual(protobufFormat.codec(resolved(text, [money]), {}).messageIndex, [0])
    assert.deepEqual(protobufFormat.codec(resolved(text, [money]), { message: "shop.Order.Line" }).messageIndex, [0, 0])
    assert.deepEqual(protobufFormat.codec(resolved(text, [money]), { message: "shop.Return" }).messageIndex, [1])
    assert.throws(() => protobufFormat.codec(resolved(text, [money]), { message: "shop.Money" }), /"shop\.Order"/)
    assert.throws(() => protobufFormat.codec(resolved("enum E { A = 0; }"), {}), /no message/)
  })
})
