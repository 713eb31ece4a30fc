import assert from "node:assert/strict"
import test from "node:test"
import { setTimeout as sleep } from "node:timers/promises"
import { type LogReader, OffsetOutOfRangeError, type PartitionRead, type Session } from "@millrace/contract"
import { stopOutsideLocks } from "./file-locks.ts"
import { type Confirmed, Ledger } from "./ledger.ts"
import { has, long } from "./needs.ts"
import { startChild } from "./trial-child.ts"
import { bytesOf, trialDirectory } from "./trial-directory.ts"
import { appendTrialBatch, ensureTopic, openSession, readPartition, trialTopic, verify } from "./trial-log.ts"
import { readTrialPayload } from "./trial-record.ts"

const batch = { writer: 1, count: 100, bytes: 10_000 }
const batchBytes = batch.count * batch.bytes

/** How many times its limit is written while a trial looks at the size of the write-ahead log. */
const times = long ? 20 : 2

/** The log in front of the database is never larger with one writer that others do not hold up, however much it writes. */
const limitOfOneBytes = 48 << 20

/** Nor with two, which hold each other up when one of them copies it. */
const limitOfTwoBytes = 72 << 20

/** What is not synced lies in the database, whole: each byte goes through the write-ahead log. */
const throughWal = { durability: "written" } as const

const limits = { maxRecords: 1_000, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 1_000 }

async function readerAtStart(session: Session): Promise<LogReader> {
  const { lineage } = await session.catalog.describeTopic(trialTopic)
  const reader = session.log.openReader({ isolation: "committed" })
  reader.set([{ ...trialTopic, partition: 0, offset: 0n, lineage }])
  return reader
}

/** Writes everything, and answers the largest that the write-ahead log was seen. */
async function writeAll(session: Session, directory: string, ledger: Ledger): Promise<number> {
  const topic = await ensureTopic(session)
  let largest = 0
  for (let index = 0; index * batchBytes < times * limitOfOneBytes; index += 1) {
    const first = index * batch.count
    ledger.confirm({ ...batch, first, base: await appendTrialBatch(session, topic, { ...batch, first }) })
    largest = Math.max(largest, bytesOf(directory, /-wal$/))
  }
  return largest
}

test("readers that stand still do not keep the write-ahead log growing", async (t) => {
  const directory = trialDirectory(t)
  const ledger = new Ledger()
  const session = await openSession(directory)
  const topic = await ensureTopic(session, trialTopic, throughWal)
  ledger.confirm({
    ...batch,
    writer: 2,
    first: 0,
    base: await appendTrialBatch(session, topic, { ...batch, writer: 2, first: 0 }),
  })

  // One took a batch and never asks again, in this process; another is stopped in the middle of reading, in its own.
  const still = await readerAtStart(session)
  const [taken] = await still.next(limits)
  assert.ok(taken !== undefined && taken.error === undefined && taken.batches.length > 0)
  const child = startChild(t, "reader")
  await child.ask("open", directory)
  await child.ask("readOn")
  const stopped = has("locks", "stop")
  if (stopped) await stopOutsideLocks(child, directory)

  const largest = await writeAll(session, directory, ledger)
  t.diagnostic(`the write-ahead log took ${(largest / 1e6).toFixed(1)} MB at most`)
  assert.ok(largest < limitOfOneBytes, `the write-ahead log grew to ${largest} bytes`)

  // What the first was handed is still what was written, and both go on where they stood.
  const [first] = taken.batches
  for (let index = 0; index < (first?.count ?? 0); index += 1) readTrialPayload(first?.payload(index) ?? null)
  const [next] = await still.next(limits)
  assert.ok(next !== undefined && next.error === undefined && next.nextOffset > taken.nextOffset)
  if (stopped) child.signal("SIGCONT")
  await child.ask("readTo", ledger.records)
  ledger.check(await readPartition(session, trialTopic))
  await child.ask("close")
  await session.close()
})

test("two processes that write all the time keep the write-ahead log within bounds", async (t) => {
  const directory = trialDirectory(t)
  const ledger = new Ledger()
  const maker = await openSession(directory)
  await ensureTopic(maker, trialTopic, throughWal)
  await maker.close()
  const writers = [1, 2].map((writer) => ({
    writer,
    child: startChild(t, "writer", { onTell: (event) => ledger.confirm(event as Confirmed) }),
  }))
  await Promise.all(writers.map(({ child }) => child.ask("open", directory)))
  const load = { records: batch.count, bytes: batch.bytes, outstanding: 2, tellConfirmed: true }
  await Promise.all(writers.map(({ child, writer }) => child.ask("start", { ...load, writer })))
  let largest = 0
  while (ledger.records * batch.bytes < times * limitOfTwoBytes) {
    largest = Math.max(largest, bytesOf(directory, /-wal$/))
    await sleep(5)
  }
  t.diagnostic(`the write-ahead log took ${(largest / 1e6).toFixed(1)} MB at most`)
  assert.ok(largest < limitOfTwoBytes, `the write-ahead log grew to ${largest} bytes`)
  for (const { child } of writers) {
    await child.ask("stop")
    await child.ask("close")
  }
  const session = await openSession(directory)
  ledger.check(await readPartition(session, trialTopic))
  await session.close()
})

test("retention frees the disk though a reader stands still, which then goes on or is told that it is too late", async (t) => {
  const retentionBytes = 32 << 20
  const directory = trialDirectory(t)
  const session = await openSession(directory)
  const topic = await ensureTopic(session, trialTopic, { maxBytes: BigInt(retentionBytes), durability: "written" })
  let first = 0
  const append = async (): Promise<void> => {
    await appendTrialBatch(session, topic, { ...batch, first })
    first += batch.count
  }
  await append()
  await append()
  const still = await readerAtStart(session)
  const [taken] = await still.next(limits)
  assert.ok(taken !== undefined && taken.error === undefined, `the first read gave ${String(taken?.error)}`)

  let largest = 0
  for (let bytes = 0; bytes < (long ? 10 : 4) * retentionBytes; bytes += batchBytes) {
    await append()
    largest = Math.max(largest, bytesOf(directory))
  }
  t.diagnostic(`with a retention of ${retentionBytes} bytes the store took ${largest} bytes at most`)
  assert.ok(
    largest <= 2 * retentionBytes,
    `the store took ${(largest / retentionBytes).toFixed(2)} times its retention`,
  )

  const [late] = (await still.next(limits)) as [PartitionRead]
  assert.ok(
    late.error instanceof OffsetOutOfRangeError,
    `a reader behind the retention was given ${String(late.error)}`,
  )
  const { offset, first: start, end } = late.error.context
  assert.equal(offset, taken.nextOffset)
  assert.ok((start as bigint) > (offset as bigint) && (end as bigint) === BigInt(first))
  const reading = await readPartition(session, trialTopic)
  assert.equal(reading.first, start)
  assert.equal(reading.records.length, Number(reading.head - reading.first))
  for (const { payload } of reading.records) readTrialPayload(payload)
  await session.close()
  const report = await verify(directory)
  assert.deepEqual([report.ok, report.problems], [true, []])
})
