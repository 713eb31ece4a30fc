import assert from "node:assert/strict"
import { test } from "node:test"
import { killRun } from "./kill-run.ts"
import { killProcessors } from "./processor-kills.ts"

const kills = process.env.MILLRACE_LONG === "1" ? 1_000 : 50

test(`${kills} kills of processes in process() leave input and output equal one to one`, async (t) => {
  const result = await killRun(t, (run) => killProcessors({ ...run, kills, sessionTimeoutMs: 1_000 }))
  t.diagnostic(`${result.kills} kills: ${result.records} records, ${result.repeated} of them handled more than once`)
  assert.ok(result.repeated > result.kills, "the kills hit next to nothing: this proves nothing")
})
