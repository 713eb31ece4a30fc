import assert from "node:assert/strict"
import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { seededRandom } from "@millrace/runtime"
import { killWorkers } from "./queue-worker-kills.ts"

const kills = process.env.MILLRACE_LONG === "1" ? 300 : 10

test(`${kills} kills of queue workers: nothing acknowledged comes again, nothing is lost, deliveries are counted`, async (t) => {
  const seed = Number(process.env.MILLRACE_SEED ?? Date.now() % 1_000_000)
  t.diagnostic(`seed ${seed}: MILLRACE_SEED=${seed} repeats it`)
  const directory = await mkdtemp(join(tmpdir(), "millrace-workers-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  const result = await killWorkers({
    url: `file:${join(directory, "log")}`,
    stream: `killed-${randomBytes(4).toString("hex")}`,
    kills,
    random: seededRandom(seed),
    cache: join(directory, "compiled"),
  }).catch((error: Error) => {
    throw new Error(`seed ${seed}: ${error.message}`, { cause: error })
  })
  const { records, repeated, acknowledged } = result
  t.diagnostic(`${records} messages: ${acknowledged} known as acknowledged, ${repeated} came more than once`)
  assert.ok(acknowledged > 0 && repeated > 0, "the kills hit next to nothing: this proves nothing")
})
