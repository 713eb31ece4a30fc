import assert from "node:assert/strict"
import { test } from "node:test"
import { DecodeError } from "./error.ts"
import { formatHeaderKinds, parseHeaderKinds } from "./header-kinds.ts"
import { type HeaderKind, headerKindCodes } from "./header-value.ts"

test("every kind has one character, and comes back", () => {
  const kinds = Object.keys(headerKindCodes) as HeaderKind[]
  const text = formatHeaderKinds(kinds)
  assert.equal(text, "123456789abcdef")
  assert.deepEqual(parseHeaderKinds(text, kinds.length), kinds)
  assert.deepEqual(parseHeaderKinds("", 0), [])
})

test("a text that tells other headers is refused", () => {
  assert.throws(() => parseHeaderKinds("22", 3), DecodeError)
  assert.throws(() => parseHeaderKinds("2g", 2), DecodeError)
  assert.throws(() => parseHeaderKinds("20", 2), DecodeError)
})
