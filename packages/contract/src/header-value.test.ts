import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { DecodeError, InvalidError } from "./error.ts"
import { type HeaderKind, HeaderValue, headerKindCodes, hex } from "./header-value.ts"

const signed = { int8: 8, int16: 16, int32: 32, int64: 64, int128: 128 } as const
const unsigned = { uint8: 8, uint16: 16, uint32: 32, uint64: 64, uint128: 128 } as const

function make(kind: keyof typeof signed | keyof typeof unsigned, bits: number, value: bigint): HeaderValue {
  return bits <= 32
    ? (HeaderValue[kind] as (value: number) => HeaderValue)(Number(value))
    : (HeaderValue[kind] as (value: bigint) => HeaderValue)(value)
}

test("integers of every width read back exactly, at their limits too", () => {
  for (const [group, isSigned] of [
    [signed, true],
    [unsigned, false],
  ] as const) {
    for (const [kind, bits] of Object.entries(group)) {
      const least = isSigned ? -(1n << BigInt(bits - 1)) : 0n
      const most = isSigned ? (1n << BigInt(bits - 1)) - 1n : (1n << BigInt(bits)) - 1n
      const name = kind as keyof typeof signed | keyof typeof unsigned
      const check = (value: bigint): void => {
        const header = make(name, bits, value)
        assert.equal(header.kind, kind)
        assert.equal(header.bytes.length, bits / 8)
        assert.equal(BigInt(header.value as number | bigint), value)
        assert.ok(HeaderValue.fromBytes(headerKindCodes[header.kind], header.bytes).equals(header))
      }
      check(least)
      check(most)
      fc.assert(fc.property(fc.bigInt({ min: least, max: most }), check))
      assert.throws(() => make(name, bits, most + 1n), InvalidError)
      assert.throws(() => make(name, bits, least - 1n), InvalidError)
    }
  }
})

test("numbers are little-endian, as Apache Iggy stores them", () => {
  assert.equal(hex(HeaderValue.uint32(0x01020304).bytes), "04030201")
  assert.equal(hex(HeaderValue.int64(-2n).bytes), "feffffffffffffff")
  assert.equal(hex(HeaderValue.uint128(1n << 120n).bytes), `${"00".repeat(15)}01`)
  assert.equal(hex(HeaderValue.float(1).bytes), "0000803f")
  assert.equal(hex(HeaderValue.double(1).bytes), "000000000000f03f")
  assert.equal(hex(HeaderValue.bool(true).bytes), "01")
})

test("kind codes are Apache Iggy's", () => {
  assert.equal(headerKindCodes.raw, 1)
  assert.equal(headerKindCodes.int128, 8)
  assert.equal(headerKindCodes.double, 15)
})

test("floats and text read back", () => {
  fc.assert(fc.property(fc.double(), (value) => Object.is(HeaderValue.double(value).value, value)))
  fc.assert(fc.property(fc.float(), (value) => Object.is(HeaderValue.float(value).value, value)))
  fc.assert(fc.property(fc.string({ unit: "grapheme" }), (text) => HeaderValue.string(text).value === text))
  assert.equal(HeaderValue.string("\ufeffx").value, "\ufeffx")
})

test("what cannot be stored is refused with its value", () => {
  assert.throws(() => HeaderValue.string("\ud800"), InvalidError)
  assert.throws(() => HeaderValue.uint16(1.5), /1\.5/)
  assert.throws(() => HeaderValue.uint64(1 as unknown as bigint), /takes a bigint/)
  assert.throws(() => HeaderValue.int8(1n as unknown as number), /whole number/)
  assert.throws(() => HeaderValue.raw("x" as unknown as Uint8Array), InvalidError)
})

test("an unknown kind, or a width that does not fit, reads as raw bytes", () => {
  assert.equal(HeaderValue.fromBytes(99, Uint8Array.of(1)).kind, "raw")
  assert.equal(HeaderValue.fromBytes(headerKindCodes.uint32, Uint8Array.of(1)).kind, "raw")
})

test("text that is not UTF-8 is a decode error, and its bytes stay reachable", () => {
  const broken = HeaderValue.fromBytes(headerKindCodes.string, Uint8Array.of(0xff))
  assert.throws(() => broken.value, DecodeError)
  assert.deepEqual(broken.bytes, Uint8Array.of(0xff))
})

test("JSON loses no digit", () => {
  const json = (value: HeaderValue): unknown => JSON.parse(JSON.stringify(value))
  assert.deepEqual(json(HeaderValue.int64(-(2n ** 63n))), { kind: "int64", value: "-9223372036854775808" })
  assert.deepEqual(json(HeaderValue.raw(Uint8Array.of(0, 255))), { kind: "raw", value: "00ff" })
  assert.deepEqual(json(HeaderValue.double(Number.NaN)), { kind: "double", value: "NaN" })
  const kinds: HeaderKind[] = ["string", "bool"]
  assert.deepEqual(
    [HeaderValue.string("a"), HeaderValue.bool(false)].map((value) => value.kind),
    kinds,
  )
})
