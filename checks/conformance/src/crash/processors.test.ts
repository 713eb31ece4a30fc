import assert from "node:assert/strict"
import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { seededRandom } from "@millrace/runtime"
import { killProcessors } from "./processor-kills.ts"

const kills = process.env.MILLRACE_LONG === "1" ? 1_000 : 50

test(`${kills} kills of processes in process() leave input and output equal one to one`, async (t) => {
  const seed = Number(process.env.MILLRACE_SEED ?? Date.now() % 1_000_000)
  t.diagnostic(`seed ${seed}: MILLRACE_SEED=${seed} repeats it`)
  const directory = await mkdtemp(join(tmpdir(), "millrace-processors-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  const result = await killProcessors({
    url: `file:${join(directory, "log")}`,
    stream: `killed-${randomBytes(4).toString("hex")}`,
    kills,
    sessionTimeoutMs: 1_000,
    random: seededRandom(seed),
    cache: join(directory, "compiled"),
  }).catch((error: Error) => {
    throw new Error(`seed ${seed}: ${error.message}`, { cause: error })
  })
  t.diagnostic(`${result.kills} kills: ${result.records} records, ${result.repeated} of them handled more than once`)
  assert.ok(result.repeated > result.kills, "the kills hit next to nothing: this proves nothing")
})
