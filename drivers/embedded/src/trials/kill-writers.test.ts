import assert from "node:assert/strict"
import test from "node:test"
import { setTimeout as sleep } from "node:timers/promises"
import { seededRandom } from "@millrace/runtime"
import { joinChild } from "./joined-child.ts"
import { type Confirmed, Ledger } from "./ledger.ts"
import { long } from "./needs.ts"
import { startChild, type TrialChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { openSession, readPartition, trialTopic, verify } from "./trial-log.ts"
import { until } from "./until.ts"

const kills = long ? 200 : 20

/** How long a writer lives behind its first confirmation, at most. */
const lifeMs = 60

test(`of two competing writers, killed ${kills} times, nothing that was confirmed is lost or there twice`, async (t) => {
  const directory = trialDirectory(t)
  const joined = await joinChild(t, "writer")
  const random = seededRandom(20_261)
  const ledger = new Ledger()
  let incarnations = 0

  /** Each incarnation is a writer of its own, so that what one of them wrote twice would show. */
  const start = async (): Promise<{ child: TrialChild; confirmed: () => number }> => {
    incarnations += 1
    const writer = incarnations
    let confirmed = 0
    const child = startChild(t, "writer", {
      joined,
      onTell: (event) => {
        confirmed += 1
        ledger.confirm(event as Confirmed)
      },
    })
    await child.ask("open", directory)
    const bytes = 20 + (random.uint32() % 1_000)
    await child.ask("start", {
      writer,
      records: 1 + (random.uint32() % 100),
      bytes,
      outstanding: 3,
      pauseMs: 1,
      tellConfirmed: true,
    })
    return { child, confirmed: () => confirmed }
  }

  // One that ends by itself leaves its compiled modules to the others.
  const first = await start()
  await first.child.ask("stop")
  await first.child.ask("close")
  first.child.end()
  await first.child.exited

  let next = start()
  let survivor = await start()
  for (let kill = 0; kill < kills; kill += 1) {
    const victim = survivor
    survivor = await next
    next = start()
    await until(() => victim.confirmed() > 0, "the writer's first confirmation")
    await sleep(random.uint32() % lifeMs)
    victim.child.signal("SIGKILL")
    await victim.child.exited
  }
  for (const left of [survivor, await next]) {
    await until(() => left.confirmed() > 0, "the writer's first confirmation")
    left.child.signal("SIGKILL")
    await left.child.exited
  }

  const session = await openSession(directory)
  ledger.check(await readPartition(session, trialTopic))
  await session.close()
  const report = await verify(directory)
  assert.deepEqual(report.problems, [])
  assert.ok(report.ok)
  t.diagnostic(`${ledger.records} records in ${ledger.batches} batches of ${incarnations} writers were confirmed`)
})
