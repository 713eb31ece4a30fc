import assert from "node:assert/strict"
import { test } from "node:test"
import { codeBlocks } from "./code-blocks.ts"

test("blocks come with language, code and line", () => {
  const text = ["# Title", "```ts", "const a = 1", "", "a", "```", "text", "```", "plain", "```"].join("\n")
  assert.deepEqual(codeBlocks(text), [
    { language: "ts", code: "const a = 1\n\na\n", line: 3 },
    { language: "", code: "plain\n", line: 9 },
  ])
})

test("a block that is never closed is an error", () => {
  assert.throws(() => codeBlocks("```ts\nconst a = 1\n"), /line 2 is never closed/)
})
