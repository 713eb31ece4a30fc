/** All or nothing across the ends of processes: outputs and the offset that counts them leave a kill together, or not at all. */
import assert from "node:assert/strict"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import test from "node:test"
import { setTimeout as sleep } from "node:timers/promises"
import { seededRandom } from "@millrace/runtime"
import { joinChild } from "./joined-child.ts"
import { long } from "./needs.ts"
import type { TransactingSettings } from "./transacting.child.ts"
import {
  nextOf,
  numbersOf,
  outputPartitions,
  outputRecords,
  outputs,
  steps,
  type Told,
  Transacting,
} from "./transacting.ts"
import { startChild, type TrialChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { openSession, readPartition, verify } from "./trial-log.ts"
import { until } from "./until.ts"

const kills = long ? 200 : 12

interface Worker {
  readonly child: TrialChild
  readonly heard: Set<unknown>
}

/** How long a process works behind its beginning, at most. */
const lifeMs = 80

test(`a process that works in transactions, killed behind each step and ${kills} times anywhere, does each of them once`, async (t) => {
  const directory = trialDirectory(t)
  const joined = await joinChild(t, "transacting")
  const random = seededRandom(7_300)
  const committed = new Set<number>()
  let prepared = 0

  const open = async (): Promise<Worker> => {
    const heard = new Set<unknown>()
    const child = startChild(t, "transacting", {
      joined,
      onTell: (event) => {
        heard.add(event)
        const told = event as Told | string
        if (typeof told === "string") return
        if ("committed" in told) committed.add(told.committed)
        else prepared += 1
      },
    })
    await child.ask("open", directory)
    return { child, heard }
  }
  // One that ends by itself leaves its compiled modules to the others, and one is always ready to go on.
  const first = await open()
  await first.child.ask("close")
  first.child.end()
  await first.child.exited
  let ready = open()
  const start = async (settings: Partial<TransactingSettings>): Promise<Worker> => {
    const worker = await ready
    ready = open()
    await worker.child.ask("work", { seed: random.uint32(), lose: random.uint32() % 3 === 0, ...settings })
    return worker
  }
  const kill = async ({ child }: Worker): Promise<void> => {
    child.signal("SIGKILL")
    await child.exited
  }

  for (const standBehind of steps) {
    const worker = await start({ standBehind })
    await until(() => worker.heard.has(standBehind === "init" ? "init" : "stands"), `the step ${standBehind}`)
    await kill(worker)
  }
  let fenced = 0
  for (let count = 0; count < kills; count += 1) {
    const worker = await start({})
    await until(() => worker.heard.has("init"), "the process to begin")
    await sleep(random.uint32() % lifeMs)
    // Now and then the next one begins while it still works: it must notice, and do nothing more.
    if (count % 4 === 3) {
      const next = await start({})
      await until(() => worker.heard.has("fenced"), "the older process to be fenced")
      fenced += 1
      await kill(next)
    }
    await kill(worker)
  }
  await kill(await ready)

  const session = await openSession(directory)
  await Transacting.start(session)
  assert.deepEqual(await session.transactions.list(), [])
  const next = await nextOf(session)
  const expected = Array.from({ length: next * outputRecords }, (_, index) => index)
  for (let partition = 0; partition < outputPartitions; partition += 1) {
    const { records, error } = await readPartition(session, outputs, partition)
    assert.equal(error, undefined)
    assert.deepEqual(numbersOf(records.map(({ payload }) => payload)), expected, `partition ${partition}`)
  }
  for (const number of committed) assert.ok(number < next, `the commit of ${number} was told, and is not there`)
  await session.close()
  const report = await verify(directory)
  assert.deepEqual(report.problems, [])
  const database = new DatabaseSync(join(directory, "millrace.db"), { readOnly: true })
  assert.equal(database.prepare("SELECT count(*) AS n FROM staged_batch").get()?.n, 0, "nothing is left of the dead")
  database.close()
  t.diagnostic(
    `${next} transactions, ${committed.size} told, ${prepared} prepared, ${fenced} processes fenced; ${report.records} records`,
  )
})
