import assert from "node:assert/strict"
import { Buffer } from "node:buffer"
import { test } from "node:test"
import { DecodeError, InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { bytes } from "./bytes.ts"
import { hexText } from "./plain-values.test-support.ts"
import { text } from "./text.ts"

test("text is UTF-8, every character as it is", () => {
  assert.equal(hexText(text.encode("\ufeffh\u00e9\u{1f600}\0")), "efbbbf68c3a9f09f988000")
  fc.assert(fc.property(fc.string({ unit: "binary" }), (value) => assert.equal(text.decode(text.encode(value)), value)))
  assert.equal(text.encode("").length, 0)
  assert.equal(text.decode(new Uint8Array()), "")
})

test("text that is not well formed is refused, in both directions", () => {
  for (const value of ["\ud800", "a\udc00b", 5, null, undefined])
    assert.throws(() => text.encode(value as never), InvalidError)
  for (const payload of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf5, 0x80, 0x80, 0x80]]) {
    assert.throws(() => text.decode(Uint8Array.from(payload)), DecodeError)
  }
})

test("bytes are copied, in both directions", () => {
  const given = Buffer.of(1, 2)
  const payload = bytes.encode(given)
  given.fill(0)
  assert.deepStrictEqual(payload, Uint8Array.of(1, 2))
  const read = bytes.decode(payload)
  payload.fill(0)
  assert.deepStrictEqual(read, Uint8Array.of(1, 2))
})

test("what is no bytes is refused", () => {
  for (const value of ["x", [1], new ArrayBuffer(1), new Uint16Array(1), null])
    assert.throws(() => bytes.encode(value as never), InvalidError)
})
