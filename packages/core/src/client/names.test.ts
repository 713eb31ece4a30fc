import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError, type Manifest } from "@millrace/contract"
import fc from "fast-check"
import { checkName, topicKey, topicText } from "./names.ts"

const limits = { nameBytes: 255 } as Manifest["limits"]

const refused: readonly [unknown, RegExp][] = [
  ["", /a topic name must not be empty/],
  [7, /must be a string, not 7/],
  [undefined, /not undefined/],
  ["a\u0000", /control character U\+0000 at index 1/],
  ["tab\there", /U\+0009 at index 3/],
  ["\u0085", /U\+0085/],
  ["\ud800", /lone surrogate/],
  ["a".repeat(256), /256 bytes of UTF-8; at most 255/],
  ["é".repeat(128), /256 bytes/],
]

for (const [name, message] of refused) {
  test(`refused as a name: ${JSON.stringify(name)?.slice(0, 20)}`, () => {
    assert.throws(
      () => checkName("topic", name, limits),
      (error) => error instanceof InvalidError && message.test(error.message),
    )
  })
}

test("everything else within the limit is a name", () => {
  for (const name of ["a", "a.b/c d", "a".repeat(255), "é".repeat(127), "名前", "😀", "millrace-x"]) {
    assert.equal(checkName("topic", name, limits), name)
  }
})

test("a topic's key is injective, whatever separators its names hold", () => {
  const name = fc.string({ minLength: 1 }).filter((text) => !/\p{Cc}/u.test(text))
  fc.assert(
    fc.property(name, name, name, name, (s1, t1, s2, t2) => {
      const equal = s1 === s2 && t1 === t2
      assert.equal(topicKey({ stream: s1, topic: t1 }) === topicKey({ stream: s2, topic: t2 }), equal)
    }),
  )
})

test("a topic without a stream is written bare", () => {
  assert.equal(topicText({ stream: "", topic: "t" }), "t")
  assert.equal(topicText({ stream: "s", topic: "t" }), "s/t")
})
