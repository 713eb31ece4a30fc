import assert from "node:assert/strict"
import { test } from "node:test"
import type { TestEvent } from "./tally.ts"
import { Tally } from "./tally.ts"

const file = `${process.cwd()}/packages/a/src/a.test.ts`
const pass: TestEvent = { type: "test:pass", data: { name: "works", file, details: { type: "test", duration_ms: 1 } } }
const skip = (reason: string): TestEvent => ({ type: "test:pass", data: { name: "kills", file, skip: reason } })
const fail = (error: unknown): TestEvent => ({ type: "test:fail", data: { name: "breaks", file, details: { error } } })

function judge(events: readonly TestEvent[], required: readonly string[] = []): { good: boolean; text: string } {
  let text = ""
  const write = (part: string): void => {
    text += part
  }
  const tally = new Tally({ required, verbose: false, write })
  for (const event of events) tally.take(event)
  return { good: tally.finish(), text }
}

test("a run is good when tests ran and none failed", () => {
  assert.equal(judge([pass]).good, true)
  assert.equal(judge([pass, fail(new Error("boom"))]).good, false)
})

test("a run without any test is not good", () => {
  const { good, text } = judge([])
  assert.equal(good, false)
  assert.match(text, /no test ran/)
})

test("a failure is named with its file, its error, and the output of its file", () => {
  const noise: TestEvent = { type: "test:stdout", data: { file, message: "seed 42\n" } }
  const { text } = judge([noise, fail({ failureType: "testCodeFailure", cause: new Error("boom") })])
  assert.match(text, /✖ packages\/a\/src\/a\.test\.ts: breaks/)
  assert.match(text, /Error: boom/)
  assert.match(text, /seed 42/)
})

test("the output of files that passed is not shown", () => {
  assert.doesNotMatch(judge([{ type: "test:stdout", data: { file, message: "noise" } }, pass]).text, /noise/)
})

test("a parent that fails for its subtests alone is not counted again", () => {
  assert.match(judge([fail(new Error("boom")), fail({ failureType: "subtestsFailed" })]).text, /0 passed, 1 failed/)
})

test("skips are listed with their reasons", () => {
  const { good, text } = judge([pass, skip("needs strace: no such program")])
  assert.equal(good, true)
  assert.match(text, /kills: needs strace: no such program/)
  assert.match(text, /1 skipped/)
})

test("a skip that is ruled out fails the run, others do not", () => {
  const events = [pass, skip("needs strace: no such program")]
  assert.equal(judge(events, ["strace"]).good, false)
  assert.equal(judge(events, ["all"]).good, false)
  assert.equal(judge(events, ["root"]).good, true)
})
