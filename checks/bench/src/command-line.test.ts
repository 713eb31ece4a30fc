import assert from "node:assert/strict"
import { test } from "node:test"
import { parseCommand } from "./command-line.ts"

const known = ["append-100b", "send-1"]

test("a list of ids, a file and the quick mode", () => {
  assert.deepEqual(
    parseCommand(["embedded", "--only", "send-1, append-100b", "--json", "out.json", "--quick"], known),
    {
      only: ["send-1", "append-100b"],
      json: "out.json",
      quick: true,
    },
  )
  assert.deepEqual(parseCommand(["embedded"], known), { only: undefined, json: undefined, quick: false })
})

test("what is unknown is refused with what is known", () => {
  assert.throws(
    () => parseCommand(["embedded", "--only", "scan"], known),
    /"scan" is unknown: the ids are append-100b, send-1/,
  )
  assert.throws(() => parseCommand(["kafka"], known), /the suites are "embedded"/)
  assert.throws(() => parseCommand([], known), /the suites are "embedded"/)
  assert.throws(() => parseCommand(["embedded", "--fast"], known), /--fast/)
})
