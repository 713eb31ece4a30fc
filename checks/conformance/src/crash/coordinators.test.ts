import assert from "node:assert/strict"
import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { seededRandom } from "@millrace/runtime"
import { killCoordinators } from "./coordinator-kills.ts"

const kills = process.env.MILLRACE_LONG === "1" ? 200 : 10

test(`${kills} kills of a coordinator of prepared transactions: all or nothing of each, as it had written down`, async (t) => {
  const seed = Number(process.env.MILLRACE_SEED ?? Date.now() % 1_000_000)
  t.diagnostic(`seed ${seed}: MILLRACE_SEED=${seed} repeats it`)
  const directory = await mkdtemp(join(tmpdir(), "millrace-coordinators-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  const result = await killCoordinators({
    url: `file:${join(directory, "log")}`,
    stream: `killed-${randomBytes(4).toString("hex")}`,
    kills,
    random: seededRandom(seed),
    journal: join(directory, "journal"),
    cache: join(directory, "compiled"),
  }).catch((error: Error) => {
    throw new Error(`seed ${seed}: ${error.message}`, { cause: error })
  })
  const { decided, committed, aborted } = result
  t.diagnostic(`${decided} decided; found prepared: ${committed} committed, ${aborted} aborted`)
  assert.ok(decided >= kills, "next to nothing was decided: this proves nothing")
  if (kills >= 100) assert.ok(committed > 0 && aborted > 0, "the kills left next to nothing prepared")
})
