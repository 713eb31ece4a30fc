/** docs/errors.md lists every kind with the defaults that the code has. */
import assert from "node:assert/strict"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { test } from "node:test"

const root = join(import.meta.dirname, "..", "..", "..")

test("the table of docs/errors.md is that of the contract", async () => {
  const source = await readFile(join(root, "packages/contract/src/error.ts"), "utf8")
  const table = await readFile(join(root, "docs/errors.md"), "utf8")
  const inCode = [...source.matchAll(/^ {2}"?([a-z-]+)"?: \[(true|false), "(rejected|unknown)"\],$/gm)]
    .map(([, kind, retryable, outcome]) => `${kind} ${retryable === "true" ? "yes" : "no"} ${outcome}`)
    .sort()
  const inDocs = [...table.matchAll(/^\| `([a-z-]+)` +\| \w+ +\| (yes|no) +\| (rejected|unknown) +\|/gm)]
    .map(([, kind, retryable, outcome]) => `${kind} ${retryable} ${outcome}`)
    .sort()
  assert.ok(inCode.length > 20)
  assert.deepEqual(inDocs, inCode)
})
