import assert from "node:assert/strict"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import process from "node:process"
import { test } from "node:test"
import { fileURLToPath } from "node:url"

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

test("the messages in the sources are those that the generator writes", () => {
  const { stdout, stderr, status } = spawnSync(process.execPath, [path("generate.ts"), path("messages.jsonl")], {
    encoding: "utf8",
  })
  assert.equal(status, 0, stderr)
  const kept = readFileSync(path("../src/protocol/messages.generated.ts"), "utf8")
  assert.ok(
    stdout === kept,
    "messages.generated.ts differs: run `node drivers/kafka/tools/generate.ts drivers/kafka/tools/messages.jsonl` into it",
  )
})
