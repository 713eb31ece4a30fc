import assert from "node:assert/strict"
import { test } from "node:test"
import { checkRepository } from "./repository.ts"

test("every source of the repository keeps to its room", () => {
  const { files, violations } = checkRepository()
  assert.ok(files > 100)
  assert.deepEqual(
    violations.map(({ path, line, message }) => `${path}:${line}: ${message}`),
    [],
  )
})
