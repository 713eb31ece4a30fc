import assert from "node:assert/strict"
import { test } from "node:test"
import { killRun } from "./kill-run.ts"
import { killWorkers } from "./queue-worker-kills.ts"

const kills = process.env.MILLRACE_LONG === "1" ? 300 : 10

test(`${kills} kills of queue workers: nothing acknowledged comes again, nothing is lost, deliveries are counted`, async (t) => {
  const result = await killRun(t, (run) => killWorkers({ ...run, kills }))
  const { records, repeated, acknowledged } = result
  t.diagnostic(`${records} messages: ${acknowledged} known as acknowledged, ${repeated} came more than once`)
  assert.ok(acknowledged > 0 && repeated > 0, "the kills hit next to nothing: this proves nothing")
})
