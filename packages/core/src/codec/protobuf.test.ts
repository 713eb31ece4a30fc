/** Protobuf against the examples of its documentation (protobuf.dev, "Encoding"), and against bytes that mean harm. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import protobufjs from "protobufjs"
import { hexBytes, hexText } from "./plain-values.test-support.ts"
import { protobuf } from "./protobuf.ts"

const proto = `
syntax = "proto3";
package t;
enum Kind { NONE = 0; SOME = 1; }
message Test1 { int32 a = 1; }
message Test2 { string b = 2; }
message Test3 { Test1 c = 3; }
message Test4 { string d = 4; repeated int32 e = 6; }
message Test6 { map<string, int32> g = 7; }
message All {
  int64 i = 1; uint64 u = 2; string s = 3; bytes y = 4; repeated int32 r = 5; map<string, int64> m = 6; Kind kind = 7;
  optional int32 o = 8; oneof choice { string left = 9; int32 right = 10; } map<int64, string> wide_keys = 11; double d = 12;
  sint32 z = 13; float snake_case = 14; repeated sint64 many = 15; All deep = 16; bool yes = 17; fixed64 f = 18;
  map<int32, Test1> messages = 19; sfixed64 sf = 20; uint32 u32 = 21; map<bool, string> flags = 22; map<uint64, bool> wide = 23;
}`
const messageOf = (message: string) => protobuf<Record<string, unknown>>({ proto, message })
const all = messageOf("t.All")
const empty = {
  ...{
    i: 0n,
    u: 0n,
    s: "",
    y: new Uint8Array(),
    r: [],
    m: {},
    kind: 0,
    wideKeys: {},
    d: 0,
    z: 0,
    snakeCase: 0,
    many: [],
  },
  ...{ yes: false, f: 0n, messages: {}, sf: 0n, u32: 0, flags: {}, wide: {} },
}

describe("the examples of the documentation", () => {
  const examples: readonly (readonly [string, object, string])[] = [
    ["t.Test1", { a: 150 }, "089601"],
    ["t.Test2", { b: "testing" }, "120774657374696e67"],
    ["t.Test3", { c: { a: 150 } }, "1a03089601"],
    ["t.Test4", { d: "", e: [3, 270, 86942] }, "3206038e029ea705"],
    ["t.Test6", { g: { x: 5 } }, "3a050a01781005"],
    ["t.All", { ...empty, z: -1 }, "6801"],
    ["t.All", { ...empty, z: -2147483648 }, "68ffffffff0f"],
    ["t.All", { ...empty, i: -2n }, "08feffffffffffffffff01"],
    ["t.All", { ...empty, many: [-1n, 1n, -2n] }, "7a03010203"],
    ["t.All", { ...empty, f: 1n }, "91010100000000000000"],
    ["t.All", { ...empty, u: 2n ** 64n - 1n }, "10ffffffffffffffffff01"],
    ["t.All", empty, ""],
    ["t.All", { ...empty, o: 0 }, "4000"],
  ]
  for (const [message, value, hex] of examples) {
    test(`${message}: ${hex}`, () => {
      const codec = messageOf(message)
      assert.deepStrictEqual(codec.decode(hexBytes(hex)), value)
      assert.equal(hexText(codec.encode(value as Record<string, unknown>)), hex)
    })
  }

  test("what others write in another way: unpacked repeats, fields twice, unknown fields", () => {
    assert.deepEqual(messageOf("t.Test4").decode(hexBytes("30033 0 8e02".replaceAll(" ", ""))).e, [3, 270])
    assert.equal(messageOf("t.Test1").decode(hexBytes("0801089601")).a, 150)
    assert.deepStrictEqual(messageOf("t.Test1").decode(hexBytes("120774657374696e67089601")), { a: 150 })
  })
})

test("every field comes back, 64-bit integers as bigints and names in camel case", () => {
  const value = {
    ...empty,
    ...{
      i: -(2n ** 63n),
      u: 2n ** 64n - 1n,
      s: "\ufeff\u00e9",
      y: Uint8Array.of(1),
      r: [1, -2],
      m: { a: 5n },
      kind: 1,
      o: 0,
    },
    ...{ right: 7, wideKeys: { "-9223372036854775808": "z", "5": "f" }, d: -0, z: -3, snakeCase: 1.5, many: [1n, -1n] },
    ...{ deep: { ...empty, i: 1n }, yes: true, f: 9n, messages: { "-4": { a: 1 } }, sf: -1n, u32: 4294967295 },
    ...{ flags: { true: "y" }, wide: { "18446744073709551615": true } },
  }
  assert.deepStrictEqual(all.decode(all.encode(value)), value)
  assert.deepStrictEqual(all.decode(all.encode({ kind: "SOME", i: 5, left: undefined })), { ...empty, kind: 1, i: 5n })
})

test("no digit of a 64-bit integer is lost, of any kind", () => {
  const signed = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
  const unsigned = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })
  const values = fc.record(
    { i: signed, u: unsigned, f: unsigned, sf: signed, many: fc.array(signed) },
    { noNullPrototype: true },
  )
  fc.assert(
    fc.property(values, signed, (value, key) => {
      const whole = { ...empty, ...value, m: { a: value.i }, wideKeys: { [String(key)]: "k" } }
      assert.deepStrictEqual(all.decode(all.encode(whole)), whole)
    }),
  )
})

test("a type that protobufjs has loaded is taken as it is", () => {
  const type = protobufjs.parse(proto).root.lookupType("t.Test1")
  assert.equal(hexText(protobuf<{ a: number }>(type).encode({ a: 150 })), "089601")
})

test("well-known types may be imported, and nothing else", () => {
  const source = (file: string, type: string): string =>
    `syntax = "proto3"; import "${file}"; message M { ${type} at = 1; }`
  const timed = source("google/protobuf/timestamp.proto", "google.protobuf.Timestamp")
  const codec = protobuf<{ at: { seconds: bigint; nanos: number } }>({ proto: timed, message: "M" })
  assert.deepStrictEqual(codec.decode(hexBytes("0a0408051001")), { at: { seconds: 5n, nanos: 1 } })
  assert.throws(() => protobuf({ proto: source("other.proto", "Other"), message: "M" }), /it imports "other\.proto"/)
})

describe("what is refused", () => {
  const misfits: readonly (readonly [unknown, RegExp])[] = [
    [null, /the value is null; it must be a message All/],
    [[], /a message All/],
    [{ i: 1.5 }, /i is 1\.5; it must be int64/],
    [{ i: 2 ** 60 }, /number within ±\(2\^53 − 1\)/],
    [{ i: 2n ** 63n }, /i is 9223372036854775808n; it must be int64/],
    [{ u: -1n }, /u is -1n; it must be uint64: a bigint from 0/],
    [{ u32: -1 }, /u32 is -1; it must be uint32/],
    [{ z: 2 ** 31 }, /z is 2147483648; it must be sint32/],
    [{ nope: 1 }, /All has no field "nope"/],
    [{ deep: { deep: { snake_case: 1 } } }, /no field "snake_case", at deep\.deep\.snake_case/],
    [{ kind: "OTHER" }, /one of NONE, SOME/],
    [{ s: "\ud800" }, /half a surrogate pair/],
    [{ s: 5 }, /s is 5; it must be a string/],
    [{ left: "x", right: 1 }, /"left" and "right" are of one oneof/],
    [{ r: 5 }, /r is 5; it must be an array/],
    [{ r: [1, "x"] }, /r\.1 is "x"; it must be int32/],
    [{ y: "abc" }, /y is "abc"; it must be a Uint8Array/],
    [{ m: { a: "x" } }, /m\.a is "x"; it must be int64/],
    [{ wideKeys: { x: "a" } }, /wideKeys is "x"; it must be a map whose keys are int64/],
    [{ wideKeys: { "9223372036854775808": "a" } }, /keys are int64/],
    [{ flags: { yes: "a" } }, /keys are bool/],
    [{ yes: 1 }, /yes is 1; it must be true or false/],
    [{ o: null }, /o is null/],
  ]
  for (const [value, message] of misfits) {
    test(`a value that does not fit: ${message.source}`, () => {
      assert.throws(
        () => all.encode(value as never),
        (error) => error instanceof InvalidError && message.test(error.message),
      )
    })
  }

  test("a cycle", () => {
    const cycle: { deep?: unknown } = {}
    cycle.deep = cycle
    assert.throws(() => all.encode(cycle), /at most 100 levels deep, and has no cycle/)
  })

  test("a text that does not parse, or lacks the message", () => {
    assert.throws(() => protobuf({ proto: "nonsense", message: "x" }), InvalidError)
    assert.throws(() => protobuf({ proto, message: "t.Nothing" }), /does not give the message "t\.Nothing"/)
    for (const type of [undefined, null, 5, {}, { proto }]) assert.throws(() => protobuf(type as never), InvalidError)
  })

  test("a message of proto2 without what it requires", () => {
    const codec = protobuf<{ a?: number }>({
      proto: 'syntax = "proto2"; message M { required int32 a = 1; }',
      message: "M",
    })
    assert.throws(() => codec.encode({}), /a is absent; it must be given: it is required/)
    assert.throws(() => codec.decode(new Uint8Array()), Error)
  })

  const hostile: readonly string[] = [
    "08",
    "1affffffff0f",
    "1a01ff",
    "08ffffffffffffffffffff01",
    "2affffff7f01",
    "04",
    "00",
    "1a056162",
    "0f",
  ]
  for (const hex of hostile) test(`the bytes ${hex}`, () => assert.throws(() => all.decode(hexBytes(hex)), Error))

  test("nesting without end, at once", () => {
    let bytes: number[] = []
    for (let level = 0; level < 300; level++) {
      const length: number[] = []
      for (let rest = bytes.length; length.length === 0 || rest > 0; rest >>>= 7)
        length.push((rest & 127) | (rest > 127 ? 128 : 0))
      bytes = [0x82, 0x01, ...length, ...bytes]
    }
    assert.throws(() => all.decode(Uint8Array.from(bytes)), /max depth exceeded/)
    assert.throws(() => all.decode(new Uint8Array(1_000_000).fill(0x0b)), Error)
  })

  test("any bytes give a message or an Error", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          all.decode(bytes)
        } catch (error) {
          assert.ok(error instanceof Error)
        }
      }),
      { numRuns: 3000 },
    )
  })
})

test("what is read shares no memory with the payload", () => {
  const payload = Uint8Array.of(0x22, 2, 7, 8)
  const { y } = all.decode(payload)
  payload.fill(0)
  assert.deepStrictEqual(y, Uint8Array.of(7, 8))
})
