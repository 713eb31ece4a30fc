import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError } from "./error.ts"
import { HeaderValue } from "./header-value.ts"
import { Headers } from "./headers.ts"

test("repeated names stay apart and in order", () => {
  const headers = Headers.from([
    ["a", "1"],
    ["b", "x"],
    ["a", "2"],
  ])
  assert.deepEqual(
    [...headers].map(([name, value]) => [name, value.value]),
    [
      ["a", "1"],
      ["b", "x"],
      ["a", "2"],
    ],
  )
  assert.equal(headers.size, 3)
  assert.equal(headers.get("a")?.value, "1")
  assert.deepEqual(
    headers.getAll("a").map((value) => value.value),
    ["1", "2"],
  )
})

test("an object, pairs and headers make the same", () => {
  const one = Headers.from({ type: HeaderValue.uint16(7), text: "x" })
  const two = Headers.from([
    ["type", HeaderValue.uint16(7)],
    ["text", "x"],
  ])
  assert.deepEqual(JSON.stringify(one), JSON.stringify(two))
  assert.equal(Headers.from(one), one)
  assert.equal(Headers.from(undefined), Headers.empty)
  assert.equal(Headers.from([]), Headers.empty)
})

test("a wrong value or name is refused and named", () => {
  assert.throws(() => Headers.from({ n: 7 as unknown as string }), /header "n".*not number/)
  assert.throws(() => Headers.from({ "": "x" }), InvalidError)
  assert.throws(() => Headers.from({ "\udc00": "x" }), InvalidError)
})
