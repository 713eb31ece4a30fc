/**
 * Two processes that write to one partition at once. The bounds are on times of one append as its caller sees them: p99 50 ms and 1 s at
 * most, though a machine whose disk alone takes longer to sync gets five times what one writer alone took (the bounds are there to find
 * writers that starve, which costs seconds).
 */
import assert from "node:assert/strict"
import test from "node:test"
import { setTimeout as sleep } from "node:timers/promises"
import { stopOutsideLocks } from "./file-locks.ts"
import { Ledger } from "./ledger.ts"
import { meets } from "./needs.ts"
import { startChild, type TrialChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { openSession, readPartition, trialTopic } from "./trial-log.ts"
import type { WriterSettings, WriterSummary } from "./writer.child.ts"

const settings = { records: 10, bytes: 100, outstanding: 1, tellConfirmed: true } satisfies Partial<WriterSettings>

/** The least number of appends that a p99 is taken of: fewer, and the writer was held up. */
const enough = 100

interface Writer {
  readonly child: TrialChild
  start(): Promise<void>
  stop(): Promise<WriterSummary>
}

async function startWriter(t: test.TestContext, directory: string, writer: number, ledger: Ledger): Promise<Writer> {
  const child = startChild(t, "writer", { onTell: (event) => ledger.confirm(event as never) })
  await child.ask("open", directory)
  return {
    child,
    start: () => child.ask("start", { ...settings, writer }),
    stop: () => child.ask<WriterSummary>("stop"),
  }
}

interface Times {
  readonly p99: number
  readonly max: number
}

function timesOf(summary: WriterSummary, least: number = enough): Times {
  assert.deepEqual(summary.failures, [])
  const sorted = summary.tookMs.toSorted((a, b) => a - b)
  assert.ok(sorted.length >= least, `only ${sorted.length} appends in all: the writer was held up`)
  return { p99: sorted[Math.floor(sorted.length * 0.99)] as number, max: sorted.at(-1) as number }
}

function assertQuick(t: test.TestContext, what: string, times: Times, alone: Times): void {
  t.diagnostic(`${what}: p99 ${times.p99.toFixed(1)} ms, max ${times.max.toFixed(1)} ms`)
  assert.ok(times.p99 < Math.max(50, alone.p99 * 5), `${what}: p99 is ${times.p99} ms, alone ${alone.p99} ms`)
  assert.ok(
    times.max < Math.max(1_000, alone.max * 5),
    `${what}: the longest took ${times.max} ms, alone ${alone.max} ms`,
  )
}

/** A pair of writers, and how quick one of them is alone. */
async function startPair(
  t: test.TestContext,
): Promise<{ directory: string; ledger: Ledger; one: Writer; two: Writer; alone: Times }> {
  const directory = trialDirectory(t)
  const ledger = new Ledger()
  const [one, two] = await Promise.all([startWriter(t, directory, 1, ledger), startWriter(t, directory, 2, ledger)])
  await one.start()
  await sleep(500)
  const alone = timesOf(await one.stop(), 1)
  t.diagnostic(`alone: p99 ${alone.p99.toFixed(1)} ms, max ${alone.max.toFixed(1)} ms`)
  await Promise.all([one.start(), two.start()])
  return { directory, ledger, one, two, alone }
}

async function checkLog(directory: string, ledger: Ledger): Promise<void> {
  const session = await openSession(directory)
  ledger.check(await readPartition(session, trialTopic))
  await session.close()
}

test("two writers hold each other up for milliseconds, and one whose event loop is blocked not at all", async (t) => {
  const { directory, ledger, one, two, alone } = await startPair(t)
  await sleep(2_000)
  const [times, others] = await Promise.all([one.stop(), two.stop()])
  assertQuick(t, "beside a competing writer", timesOf(times), alone)
  assertQuick(t, "the other of the two", timesOf(others), alone)

  await Promise.all([one.start(), two.start()])
  const blocked = one.child.ask("blockLoop", 3_000)
  await sleep(2_800)
  assertQuick(t, "beside a writer whose event loop is blocked for 3 s", timesOf(await two.stop()), alone)
  await blocked
  await one.stop()
  await Promise.all([one.child.ask("close"), two.child.ask("close")])
  await checkLog(directory, ledger)
})

test("a writer that is stopped outside of a commit does not hold the other up", async (t) => {
  if (!meets(t, "locks", "stop")) return
  const { directory, ledger, one, two, alone } = await startPair(t)
  const met = await stopOutsideLocks(one.child, directory)
  t.diagnostic(`it was met inside of a commit ${met} times, and let go on`)
  await two.stop()
  await two.start()
  await sleep(1_500)
  assertQuick(t, "beside a writer that is stopped", timesOf(await two.stop()), alone)
  one.child.signal("SIGCONT")
  await one.stop()
  await Promise.all([one.child.ask("close"), two.child.ask("close")])
  await checkLog(directory, ledger)
})
