import assert from "node:assert/strict"
import test from "node:test"
import { type Confirmed, Ledger } from "./ledger.ts"
import { long } from "./needs.ts"
import type { StormSettings } from "./storm.child.ts"
import { startChild, type TrialChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { openSession, readPartition, trialTopic, verify } from "./trial-log.ts"
import type { WriterSummary } from "./writer.child.ts"

/** Opens and closes in all; those with a worker of their own are few, since each costs as much as many of the others. */
const opens = long ? 10_000 : 150
const opensWithWorker = opens / 25
const stormers = 2

const settings = { records: 10, bytes: 100, outstanding: 2, tellConfirmed: true }

async function storm(child: TrialChild, stormSettings: StormSettings): Promise<void> {
  await child.ask("storm", stormSettings)
}

/** The log holds all that was confirmed, and nothing else. */
async function checkStore(directory: string, ledger: Ledger): Promise<void> {
  const session = await openSession(directory)
  const reading = await readPartition(session, trialTopic)
  ledger.check(reading)
  assert.equal(reading.records.length, ledger.records)
  await session.close()
  const report = await verify(directory)
  assert.deepEqual([report.ok, report.problems, report.records], [true, [], ledger.records])
}

test(`${opens} opens and closes beside two competing writers and two processor hogs lose nothing`, async (t) => {
  const directory = trialDirectory(t)
  const ledger = new Ledger()
  const onTell = (event: unknown): void => ledger.confirm(event as Confirmed)
  const writers = [1, 2].map((writer) => ({ writer, child: startChild(t, "writer", { onTell }) }))
  const children = Array.from({ length: stormers }, () => startChild(t, "storm", { onTell, patienceMs: 600_000 }))
  await Promise.all(writers.map(({ child }) => child.ask("open", directory)))
  startChild(t, "hog")
  startChild(t, "hog")
  await Promise.all(writers.map(({ child, writer }) => child.ask("start", { ...settings, writer })))

  const each = opens / stormers
  const storms = children.map((child, index) =>
    storm(child, { directory, writer: 3 + index, opens: each, appendEvery: 10 }),
  )
  for (let open = 0; open < opensWithWorker; open += 1) {
    const confirmed = ledger.records
    const session = await openSession(directory)
    const [marks] = await session.log.watermarks([{ ...trialTopic, partition: 0 }])
    assert.ok(
      marks !== undefined && "end" in marks && marks.end >= BigInt(confirmed),
      `an open saw less than ${confirmed}`,
    )
    await session.close()
  }
  await Promise.all(storms)

  for (const { child } of writers) {
    const summary = await child.ask<WriterSummary>("stop")
    assert.deepEqual(summary.failures, [])
    assert.ok(summary.tookMs.length > opens / 20, `the writer appended only ${summary.tookMs.length} times`)
    await child.ask("close")
  }
  await checkStore(directory, ledger)
  t.diagnostic(`${ledger.records} records in ${ledger.batches} batches were confirmed meanwhile`)
})

test("opens and closes with nobody else there, so that one is the last again and again, lose nothing", async (t) => {
  const directory = trialDirectory(t)
  const ledger = new Ledger()
  const onTell = (event: unknown): void => ledger.confirm(event as Confirmed)
  const children = Array.from({ length: stormers }, () => startChild(t, "storm", { onTell, patienceMs: 600_000 }))
  const each = opens / stormers
  await Promise.all(
    children.map((child, index) => storm(child, { directory, writer: 1 + index, opens: each, appendEvery: 2 })),
  )
  await checkStore(directory, ledger)
  t.diagnostic(`${ledger.records} records were confirmed`)
})
