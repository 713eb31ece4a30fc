import assert from "node:assert/strict"
import { test } from "node:test"
import { killCoordinators } from "./coordinator-kills.ts"
import { killRun } from "./kill-run.ts"

const kills = process.env.MILLRACE_LONG === "1" ? 200 : 10

test(`${kills} kills of a coordinator of prepared transactions: all or nothing of each, as it had written down`, async (t) => {
  const result = await killRun(t, (run) => killCoordinators({ ...run, kills }))
  const { decided, committed, aborted } = result
  t.diagnostic(`${decided} decided; found prepared: ${committed} committed, ${aborted} aborted`)
  assert.ok(decided >= kills, "next to nothing was decided: this proves nothing")
  if (kills >= 100) assert.ok(committed > 0 && aborted > 0, "the kills left next to nothing prepared")
})
