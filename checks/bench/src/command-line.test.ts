import assert from "node:assert/strict"
import { test } from "node:test"
import { parseCommand } from "./command-line.ts"

const known = { embedded: ["append-100b", "send-1"], other: ["produce"] }

test("a list of ids, a file and the quick mode", () => {
  assert.deepEqual(
    parseCommand(["embedded", "--only", "send-1, append-100b", "--json", "out.json", "--markdown", "--quick"], known),
    {
      suite: "embedded",
      only: ["send-1", "append-100b"],
      json: "out.json",
      markdown: true,
      quick: true,
    },
  )
  assert.deepEqual(parseCommand(["embedded"], known), {
    suite: "embedded",
    only: undefined,
    json: undefined,
    markdown: false,
    quick: false,
  })
  assert.equal(parseCommand(["other", "--only", "produce"], known).suite, "other")
})

test("what is unknown is refused with what is known", () => {
  assert.throws(
    () => parseCommand(["embedded", "--only", "scan"], known),
    /"scan" is unknown: the ids are append-100b, send-1/,
  )
  assert.throws(() => parseCommand(["elsewhere"], known), /the suites are "embedded", "other"/)
  assert.throws(() => parseCommand([], known), /the suites are "embedded", "other"/)
  assert.throws(() => parseCommand(["embedded", "--fast"], known), /--fast/)
})
