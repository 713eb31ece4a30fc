/** The suite must be able to fail: each wrong driver is found by the chapter that is there for it. */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { extname } from "node:path"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { mutants } from "./rig/mutant.ts"

/** What became of the tests of one suite. */
interface Tally {
  passed: number
  failed: number
}

test("the suite finds every wrong driver", async () => {
  const tallies = tally(await tapOf("mutants.child"))
  for (const { name, chapter } of mutants) {
    const { passed, failed } = tallies.get(name) ?? { passed: 0, failed: 0 }
    assert.ok(failed > 0, `the chapter ${chapter} did not find ${name}: ${passed} tests passed`)
    assert.ok(passed > 0, `all ${failed} tests failed for ${name}: that is no finding, the rig is broken`)
  }
})

/** The report of a file of tests that is run by a process of its own, since it is meant to fail. */
function tapOf(file: string): Promise<string> {
  const here = fileURLToPath(import.meta.url)
  const path = fileURLToPath(new URL(`./${file}${extname(here)}`, import.meta.url))
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  const options = { env: { ...env, MILLRACE_PATIENCE_MS: "2000" }, maxBuffer: 64 * 1024 * 1024 }
  return new Promise((resolve) => {
    execFile(process.execPath, ["--test-reporter=tap", path], options, (_error, stdout) => resolve(stdout))
  })
}

/** Counts the tests inside the chapters of each suite: two levels below the suite, so behind eight spaces. */
function tally(tap: string): Map<string, Tally> {
  const tallies = new Map<string, Tally>()
  let current: Tally = { passed: 0, failed: 0 }
  for (const line of tap.split("\n")) {
    const suite = /^# Subtest: (.*)$/.exec(line)?.[1]
    if (suite !== undefined) {
      current = { passed: 0, failed: 0 }
      tallies.set(suite, current)
    }
    if (/^ {8}ok /.test(line) && !line.includes("# SKIP")) current.passed++
    if (/^ {8}not ok /.test(line)) current.failed++
  }
  return tallies
}
