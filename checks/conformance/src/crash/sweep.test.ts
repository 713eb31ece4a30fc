import assert from "node:assert/strict"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { verifyStore } from "@millrace/embedded"
import { seededRandom } from "@millrace/runtime"
import { sweep } from "./sweep.ts"

const long = process.env.MILLRACE_LONG === "1"
const kills = long ? 1_000 : 50

/** A store of its own for so many kills, so that reading all of it after each stays short. */
const killsPerStore = 100

test(`${kills} processes killed while writing and reading: nothing confirmed is lost, doubled or out of order`, async (t) => {
  const seed = Number(process.env.MILLRACE_SEED ?? Date.now() % 1_000_000)
  t.diagnostic(`seed ${seed}: MILLRACE_SEED=${seed} repeats it`)
  for (let done = 0; done < kills; ) {
    const parent = await mkdtemp(join(tmpdir(), "millrace-crash-"))
    t.after(() => rm(parent, { recursive: true, force: true }))
    const directory = join(parent, "log")
    const result = await sweep({
      url: `file:${directory}`,
      kills: Math.min(killsPerStore, kills - done),
      random: seededRandom(seed + done),
      cache: join(parent, "compiled"),
      verify: async () => {
        const report = await verifyStore(directory)
        assert.ok(report.ok, `seed ${seed}: ${JSON.stringify(report.problems)}`)
      },
    }).catch((error: Error) => {
      throw new Error(`seed ${seed + done}: ${error.message}`, { cause: error })
    })
    done += result.kills
    t.diagnostic(
      `${result.kills} kills: ${result.confirmed} confirmed of ${result.stored} stored, ${result.handled} handled, ${result.committed} committed`,
    )
    assert.ok(result.confirmed > result.kills, "the writers confirmed next to nothing: the sweep proves nothing")
    assert.ok(result.handled > 0 && result.committed > 0, "the readers did nothing: the sweep proves nothing")
  }
})
