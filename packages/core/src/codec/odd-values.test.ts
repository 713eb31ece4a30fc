/** What becomes of values that formats have no form for: nothing is lost without a word, and every failure names the codec and the place. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import { avro } from "./avro.ts"
import { bson } from "./bson.ts"
import { cbor } from "./cbor.ts"
import type { Codec } from "./codec.ts"
import { json } from "./json.ts"
import { msgpack } from "./msgpack.ts"
import { protobuf } from "./protobuf.ts"

type Kept = readonly [from: unknown, to: unknown]
const cycle: { self?: { again: unknown } } = {}
cycle.self = { again: cycle }
const holed = new Array<number>(2)
holed[1] = 1
let deep: object = {}
for (let level = 0; level < 10_000; level++) deep = { down: deep }
const when = new Date("2009-02-13T23:31:30.123Z")

/** For each value what `{ v: value }` is read as by json, cbor, msgpack and bson, or the text of the error. */
const table: readonly (readonly [name: string, value: unknown, ...results: readonly (Kept | RegExp)[]])[] = [
  ["undefined", undefined, ["", {}], ["", {}], ["", {}], ["", {}]],
  [
    "undefined in an array",
    [undefined],
    /undefined, at v\[0\]/,
    kept([undefined]),
    /undefined, at v\[0\]/,
    /undefined, at v\[0\]/,
  ],
  ["a hole", holed, /undefined, at v\[0\]/, kept([undefined, 1]), /undefined, at v\[0\]/, /undefined, at v\[0\]/],
  ["NaN", Number.NaN, /NaN, at v/, kept(Number.NaN), kept(Number.NaN), kept(Number.NaN)],
  ["Infinity", Infinity, /Infinity, at v/, kept(Infinity), kept(Infinity), kept(Infinity)],
  ["-0", -0, kept(0), kept(0), kept(0), kept(-0)],
  ["5n", 5n, /bigint 5, at v/, kept(5), kept(5), kept(5n)],
  [
    "2^63",
    2n ** 63n,
    /bigint 9223372036854775808, at v/,
    kept(2n ** 63n),
    kept(2n ** 63n),
    /bigint 9223372036854775808, at v/,
  ],
  ["-2^63", -(2n ** 63n), /bigint -/, kept(-(2n ** 63n)), kept(-(2n ** 63n)), kept(-(2n ** 63n))],
  ["-2^64", -(2n ** 64n), /bigint -/, kept(-(2n ** 64n)), /bigint -/, /bigint -/],
  ["2^65", 2n ** 65n, /bigint 3/, kept(2n ** 65n), /bigint 3/, /bigint 3/],
  [
    "a bigint beyond all",
    2n ** 5000n,
    /bigint of 1506 digits/,
    /bigint of 1506 digits/,
    /bigint of 1506 digits/,
    /bigint of 1506/,
  ],
  ["a date", when, kept("2009-02-13T23:31:30.123Z"), kept(when), kept(when), kept(when)],
  ["an invalid date", new Date(Number.NaN), /invalid Date, at v/, /invalid Date/, /invalid Date/, /invalid Date/],
  ["a map", new Map([["a", 1]]), /a Map, at v/, kept({ a: 1 }), kept({ a: 1 }), kept({ a: 1 })],
  [
    "a map with other keys",
    new Map([[2, 3]]),
    /a Map, at v/,
    /keys that are no strings/,
    /keys that are no/,
    /keys that are no/,
  ],
  ["a set", new Set([1]), /Set\), at v/, /Set\), at v/, /Set\), at v/, /Set\), at v/],
  ["an error", new Error("x"), /Error\), at v/, /Error\), at v/, /Error\), at v/, /Error\), at v/],
  ["a function", () => 1, ["", {}], /a function, at v/, /a function, at v/, /a function, at v/],
  ["a function in an array", [() => 1], /a function, at v\[0\]/, /a function/, /a function/, /a function/],
  ["a symbol", Symbol("s"), ["", {}], /Symbol\(s\), at v/, /Symbol\(s\), at v/, /Symbol\(s\), at v/],
  ["half a surrogate pair", "a\ud800", kept("a\ud800"), /half a surrogate/, /half a surrogate/, /half a surrogate/],
  [
    "half a pair in a key",
    { "\ud800": 1 },
    kept({ "\ud800": 1 }),
    /half a surrogate/,
    /half a surrogate/,
    /half a surrogate/,
  ],
  [
    "bytes",
    new Uint8Array([1]),
    /bytes \(a Uint8Array\), at v/,
    kept(new Uint8Array([1])),
    kept(new Uint8Array([1])),
    kept(Buffer.of(1)),
  ],
  ["other views", new Float32Array([1.5]), /Float32Array\), at v/, /Float32Array/, /Float32Array/, /Float32Array/],
  ["a buffer", Buffer.of(1), /bytes/, kept(new Uint8Array([1])), kept(new Uint8Array([1])), kept(Buffer.of(1))],
  ["an array buffer", new ArrayBuffer(2), /ArrayBuffer\), at v/, /ArrayBuffer/, /ArrayBuffer/, /ArrayBuffer/],
  ["an object with toJSON", { toJSON: () => 7 }, kept(7), /toJSON/, /toJSON/, /toJSON/],
  [
    "an object of a class",
    new (class Point {
      x = 1
    })(),
    kept({ x: 1 }),
    kept({ x: 1 }),
    kept({ x: 1 }),
    kept({ x: 1 }),
  ],
  ["a boxed number", new Number(4), kept(4), /Number\), at v/, /Number\), at v/, /Number\), at v/],
  ["2^53 - 1", 2 ** 53 - 1, kept(2 ** 53 - 1), kept(2 ** 53 - 1), kept(2 ** 53 - 1), kept(2 ** 53 - 1)],
  ["a large double", 2 ** 60, kept(2 ** 60), kept(2 ** 60), kept(2 ** 60), kept(2 ** 60)],
  ["a byte order mark", "\ufeffx", kept("\ufeffx"), kept("\ufeffx"), kept("\ufeffx"), kept("\ufeffx")],
  ["a replacement character", "\ufffd", kept("\ufffd"), kept("\ufffd"), kept("\ufffd"), kept("\ufffd")],
  [
    "a cycle",
    cycle,
    /a cycle, at v\.self\.again/,
    /a cycle, at v\.self\.again/,
    /a cycle, at v\.self/,
    /a cycle, at v\.self/,
  ],
  [
    "10,000 levels",
    deep,
    /nested deeper than/,
    /nested deeper than 1000/,
    /nested deeper than 1000/,
    /nested deeper than 1000/,
  ],
]

function kept(value: unknown): Kept {
  return ["", { v: value }]
}

const codecs: readonly Codec<unknown>[] = [json(), cbor(), msgpack(), bson()]

for (const [index, codec] of codecs.entries()) {
  describe(codec.name, () => {
    for (const [name, value, ...results] of table) {
      const result = results[index] as Kept | RegExp
      test(`${name} ${result instanceof RegExp ? "is refused" : "is kept, or what is said of it"}`, () => {
        if (!(result instanceof RegExp)) {
          assert.deepStrictEqual(codec.decode(codec.encode({ v: value })), result[1])
          return
        }
        assert.throws(
          () => codec.encode({ v: value }),
          (error) =>
            error instanceof InvalidError && error.message.startsWith(codec.name) && result.test(error.message),
        )
      })
    }
  })
}

test("a getter or a toJSON that throws is an InvalidError of every codec", () => {
  const hostile = {
    get v(): never {
      throw undefined
    },
  }
  const thrower = { toJSON: () => Promise.reject.call(undefined) }
  for (const codec of codecs) {
    for (const value of [hostile, codec.name === "JSON" ? { thrower } : hostile]) {
      assert.throws(() => codec.encode(value), InvalidError, codec.name)
    }
  }
})

test("keys that mean something in JavaScript change no prototype", () => {
  const hostile = JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}')
  const schema = protobuf({ proto: 'syntax = "proto3"; message M { map<string, int32> v = 1; }', message: "M" })
  const map = avro({ type: "map", values: "int" })
  const read: unknown[] = [json(), cbor(), bson()].map((codec) => codec.decode(codec.encode(hostile)))
  for (const value of read) assert.deepEqual(Object.keys(value as object), ["__proto__", "constructor"])
  read.push(schema.decode(Uint8Array.from([10, 13, 10, 9, ...new TextEncoder().encode("__proto__"), 16, 1])))
  assert.throws(() => msgpack().encode(hostile), /a key that means something else in JavaScript, at __proto__/)
  assert.throws(() => map.encode(hostile), /__proto__/)
  assert.throws(() => map.decode(Uint8Array.from([2, 18, ...new TextEncoder().encode("__proto__"), 2, 0])), /__proto__/)
  assert.equal(({} as { polluted?: unknown }).polluted, undefined)
  for (const value of read) assert.equal(Object.getPrototypeOf(value), Object.prototype)
})

test("100 MiB go through every codec", { timeout: 120_000 }, () => {
  const text = "x".repeat(100 << 20)
  const field = { type: "record", name: "R", fields: [{ name: "v", type: "string" }] }
  const proto = { proto: 'syntax = "proto3"; message M { string v = 1; }', message: "M" }
  // A schema is checked before and after JSON, which is there already.
  for (const codec of [...codecs, avro(field), protobuf(proto)]) {
    const payload = codec.encode({ v: text })
    assert.ok(payload.length > text.length)
    assert.equal((codec.decode(payload) as { v: string }).v.length, text.length, codec.name)
  }
})
