/**
 * Durability where SIGKILL cannot reach: after a crash of the machine. A program's writes and syncs are traced; at many moments of the
 * trace the disk is rebuilt as a crash may have left it, opened, and compared with what the program had been told by then.
 */
import assert from "node:assert/strict"
import { join } from "node:path"
import test from "node:test"
import { MillraceError, type Position } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import { DiskModel, type Fate, fates } from "./disk-model.ts"
import { checkSound, Ledger } from "./ledger.ts"
import { long, meets } from "./needs.ts"
import type { TraceEvent } from "./strace-trace.ts"
import { openThreadSession } from "./thread-session.ts"
import { type Trace, traceProgram, withoutFileSyncs, writeImage } from "./traced-program.ts"
import { trialDirectory } from "./trial-directory.ts"
import { appendTrialBatch, ensureTopic, readPartition, verify } from "./trial-log.ts"

const images = long ? 3_000 : 150
const synced = { stream: "trials", topic: "synced" }
/** Keeps a megabyte: its segments go, oldest first, and its two newest batches never do. */
const limited = { stream: "trials", topic: "limited" }
const written = { stream: "trials", topic: "written" }

/** What the program had been told by a moment of the trace. */
interface Told {
  readonly synced: Ledger
  readonly limited: Ledger
  readonly offsets: Map<string, bigint>
}

function hear(told: Told, mark: string): void {
  const [what, ...numbers] = mark.trim().split(" ")
  const [a, b, count] = numbers.map(Number) as [number, number, number]
  if (what === "synced") told.synced.confirm({ writer: 1, base: BigInt(a), first: b, count })
  if (what === "limited") told.limited.confirm({ writer: 3, base: BigInt(a), first: b, count })
  if (what === "offset") told.offsets.set(`traced-${a}`, BigInt(b))
}

/** Opens what a crash left. @throws AssertionError when something that was promised is not there. */
async function checkImage(directory: string, told: Told): Promise<void> {
  const session = openThreadSession(directory)
  try {
    const topic = await ensureTopic(session, synced)
    await ensureTopic(session, written, { durability: "written" })
    const reading = await readPartition(session, synced)
    told.synced.check(reading)
    checkSound(await readPartition(session, written))
    await ensureTopic(session, limited)
    told.limited.check(await readPartition(session, limited), { newest: 2 })
    for (const [name, next] of told.offsets) {
      const [found] = await session.offsets.load({ kind: "consumer", name }, [{ ...synced, partition: 0 }])
      assert.equal((found as Position | undefined)?.offset, next, `the offset of ${name} is lost`)
    }
    // The log goes on where it ends.
    assert.equal(await appendTrialBatch(session, topic, { writer: 4, first: 0, count: 2, bytes: 50 }), reading.head)
  } finally {
    await session.close()
  }
  const report = await verify(directory)
  assert.deepEqual([report.ok, report.problems], [true, []])
}

/** A crash after which a promise was broken. */
interface Broken {
  readonly fate: Fate
  readonly at: number
  /** Records that had been confirmed by then. */
  readonly confirmed: number
  readonly error: unknown
}

/** Crashes at `count` moments in order, half of them right behind a confirmation; answers what went wrong. */
async function crash(t: test.TestContext, trace: Trace, count: number, seed: number): Promise<Broken[]> {
  const random = seededRandom(seed)
  const directory = join(trialDirectory(t, { inMemory: true }), "image")
  const moments = Array.from({ length: count }, (_, index) => {
    const at = random.uint32() % trace.events.length
    const mark = trace.events.findIndex(({ kind }, event) => kind === "mark" && event >= at)
    return index % 2 === 0 && mark !== -1 ? mark + 1 : at
  }).sort((a, b) => a - b)
  const model = new DiskModel([trace.parent])
  const told: Told = { synced: new Ledger(), limited: new Ledger(), offsets: new Map() }
  const failed: Broken[] = []
  let applied = 0
  for (const [index, at] of moments.entries()) {
    for (; applied < at; applied += 1) {
      const event = trace.events[applied] as TraceEvent
      if (event.kind === "mark") hear(told, event.text)
      model.apply(event)
    }
    const fate = fates[index % fates.length] as Fate
    writeImage(directory, trace, model.image(fate, random))
    await checkImage(directory, told).catch((error: unknown) =>
      failed.push({ fate, at, error, confirmed: told.synced.records }),
    )
  }
  return failed
}

/** What is lost shows as such, or as a store that says that it is damaged. */
function assertRed(t: test.TestContext, failed: readonly Broken[]): void {
  const red = failed.filter(({ confirmed, error }) => {
    return confirmed > 0 && (error instanceof assert.AssertionError || error instanceof MillraceError)
  })
  t.diagnostic(`${red.length} images had lost something that was confirmed`)
  assert.ok(red.length > 0, "nothing was lost without the syncs: the check proves nothing")
}

test(`after a crash at any of ${images} moments, all that was confirmed as synced is there`, async (t) => {
  if (!meets(t, "strace")) return
  const trace = await traceProgram(t, "traced", ["3", "40", "with"])
  const marks = trace.events.filter(({ kind }) => kind === "mark").length
  const syncs = trace.events.filter(({ kind }) => kind === "sync").length
  const segments = trace.events.filter((event) => event.kind === "remove" && event.path.endsWith(".log")).length
  t.diagnostic(`${trace.events.length} events: ${syncs} syncs, ${marks} confirmations, ${segments} segments removed`)
  assert.ok(marks > 50 && syncs > 30 && segments > 1, "the trace is too poor to prove anything")

  await t.test("with the syncs that were made", async (u) => {
    for (const { fate, at, error } of await crash(u, trace, images, 1)) {
      throw new Error(`a crash at event ${at} of ${trace.events.length}, unsynced writes: ${fate}`, { cause: error })
    }
  })

  await t.test("and with the syncs taken out of the trace the check goes red", async (u) => {
    assertRed(u, await crash(u, withoutFileSyncs(trace), 20, 2))
  })
})

test("with the syncs taken out of the program the check goes red", async (t) => {
  if (!meets(t, "strace")) return
  assertRed(t, await crash(t, await traceProgram(t, "traced", ["3", "40", "without"]), 20, 3))
})
