import assert from "node:assert/strict"
import { test } from "node:test"
import { listFiles } from "../source-files.ts"
import { longestFirst } from "./order.ts"

test("the longest files come first, and the others in their order", () => {
  const files = ["packages/b.test.ts", "packages/a.test.ts", "checks/conformance/src/broker/kafka.test.ts"]
  assert.deepEqual(longestFirst(files), [files[2], files[0], files[1]])
})

test("every file that is called long is there", () => {
  const files = ["packages", "drivers", "checks", "tools", "examples"].flatMap((area) =>
    listFiles(area, (path) => path.endsWith(".test.ts")),
  )
  const [first = "", second = ""] = longestFirst(files)
  assert.match(first, /broker\/kafka\.test\.ts$/)
  assert.match(second, /broker\//)
})
