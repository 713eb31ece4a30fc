import assert from "node:assert/strict"
import { readFile } from "node:fs/promises"
import { test } from "node:test"
import { manifestPart } from "./page.ts"

test("docs/backends.md tells the manifests as they are: npm run backends writes it", async () => {
  const page = await readFile(new URL("../../../../docs/backends.md", import.meta.url), "utf8")
  assert.ok(page.startsWith(manifestPart()), "the manifests have changed since docs/backends.md was written")
  assert.doesNotMatch(page, /failed/)
})
