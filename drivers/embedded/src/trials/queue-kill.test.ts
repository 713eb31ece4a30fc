import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import test from "node:test"
import { setTimeout as sleep } from "node:timers/promises"
import { seededRandom } from "@millrace/runtime"
import { joinChild } from "./joined-child.ts"
import { long } from "./needs.ts"
import { startChild, type TrialChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { appendTrialBatch, ensureTopic, openSession, trialTopic, verify } from "./trial-log.ts"
import { type Taken, takenOf, trialQueue } from "./trial-queue.ts"
import { until } from "./until.ts"

const kills = long ? 200 : 5

/** How long a taker lives behind its first confirmation, at most. */
const lifeMs = 60

interface Taker {
  readonly child: TrialChild
  readonly file: string
  readonly settled: Taken[]
}

test(`of two takers of a queue, killed ${kills} times, every message is delivered until it is settled, to one at a time`, async (t) => {
  const directory = trialDirectory(t)
  const files = trialDirectory(t)
  const joined = await joinChild(t, "queue-taker")
  const random = seededRandom(4711)
  const session = await openSession(directory)
  const topic = await ensureTopic(session)
  await session.queues.open(trialTopic, trialQueue.name, trialQueue.spec)
  const takers: Taker[] = []
  let appended = 0

  const start = async (): Promise<Taker> => {
    const settled: Taken[] = []
    const child = startChild(t, "queue-taker", {
      joined,
      onTell: (event) => settled.push(...(event as { readonly settled: Taken[] }).settled),
    })
    const taker = { child, settled, file: join(files, `${takers.length}`) }
    takers.push(taker)
    await child.ask("open", directory)
    await child.ask("start", taker.file)
    return taker
  }
  const feed = async (): Promise<void> => {
    const count = 50 + (random.uint32() % 200)
    await appendTrialBatch(session, topic, { writer: 1, first: appended, count, bytes: 40 })
    appended += count
  }

  await feed()
  let survivor = await start()
  let coming = start()
  for (let kill = 0; kill < kills; kill++) {
    const next = await coming
    coming = start()
    const victim = survivor
    const before = victim.settled.length
    await feed()
    await until(() => victim.settled.length > before || next.settled.length > 0, "a confirmation")
    await sleep(random.uint32() % lifeMs)
    victim.child.signal("SIGKILL")
    await victim.child.exited
    survivor = next
  }
  const last = await coming
  const isDone = async (): Promise<boolean> => {
    const { undelivered, ackPending } = await session.queues.describe(trialTopic, trialQueue.name)
    return undelivered === 0n && ackPending === 0
  }
  for (const end = performance.now() + 20_000; !(await isDone()); await sleep(20))
    assert.ok(performance.now() < end, "what dead takers had does not come to the one that lives")
  for (const { child } of [survivor, last]) {
    await child.ask("stop")
    await child.ask("close")
    child.end()
    await child.exited
  }
  await session.close()

  const taken = takers.flatMap(({ file }) => read(file))
  const deliveries = new Set(taken.map(({ offset, deliveries: number }) => `${offset} ${number}`))
  assert.equal(deliveries.size, taken.length, "a delivery went to two takers")
  const settled = takers.flatMap(({ settled: some }) => some)
  const settledAs = new Map(settled.map(({ offset, deliveries: number }) => [offset, number]))
  assert.equal(settledAs.size, settled.length, "a message was settled twice")
  for (const { offset, deliveries: number } of taken)
    assert.ok(number <= (settledAs.get(offset) ?? number), `message ${offset} came again after it was settled`)
  assert.equal(new Set(taken.map(({ offset }) => offset)).size, appended, "a message was never delivered")
  assert.deepEqual((await verify(directory)).problems, [])
  t.diagnostic(`${appended} messages, ${taken.length} deliveries, ${settled.length} known as settled`)
})

function read(file: string): Taken[] {
  try {
    return takenOf(readFileSync(file, "utf8"))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return []
    throw error
  }
}
