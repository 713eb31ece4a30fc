/** The same after a crash of the machine: what was told to be committed or prepared is there, and everything else is there as a whole or not. */
import assert from "node:assert/strict"
import { join } from "node:path"
import test from "node:test"
import { MillraceError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import { DiskModel, type Fate, fates } from "./disk-model.ts"
import { long, meets } from "./needs.ts"
import type { TraceEvent } from "./strace-trace.ts"
import { openThreadSession } from "./thread-session.ts"
import { type Trace, traceProgram, withoutFileSyncs, writeImage } from "./traced-program.ts"
import { nextOf, numbersOf, outputPartitions, outputRecords, outputs, Transacting } from "./transacting.ts"
import { trialDirectory } from "./trial-directory.ts"
import { readPartition, verify } from "./trial-log.ts"

const images = long ? 1_500 : 40

/** What the program had been told by a moment of the trace. */
interface Heard {
  committed: number
  /** The last transaction that was prepared. None of these is aborted. */
  prepared: number | undefined
}

function hear(heard: Heard, mark: string): void {
  const [what, number] = mark.trim().split(" ")
  if (what === "committed") heard.committed = Number(number) + 1
  if (what === "prepared") heard.prepared = Number(number)
}

async function checkImage(directory: string, heard: Heard): Promise<void> {
  const session = openThreadSession(directory)
  try {
    // It completes what it finds prepared.
    await Transacting.start(session)
    const next = await nextOf(session)
    assert.ok(next >= heard.committed, `${heard.committed} commits were told, and ${next} are there`)
    if (heard.prepared !== undefined)
      assert.ok(next > heard.prepared, `transaction ${heard.prepared} was prepared, and is lost`)
    const expected = Array.from({ length: next * outputRecords }, (_, index) => index)
    for (let partition = 0; partition < outputPartitions; partition += 1) {
      const { records, error } = await readPartition(session, outputs, partition)
      if (error !== undefined) throw error
      assert.deepEqual(numbersOf(records.map(({ payload }) => payload)), expected, `partition ${partition}`)
    }
  } finally {
    await session.close()
  }
  const report = await verify(directory)
  assert.deepEqual([report.ok, report.problems], [true, []])
}

interface Broken {
  readonly fate: Fate
  readonly at: number
  readonly error: unknown
}

/** Crashes at `count` moments in order, half of them right behind something that was told; answers what went wrong. */
async function crash(t: test.TestContext, trace: Trace, count: number): Promise<Broken[]> {
  const random = seededRandom(4)
  const directory = join(trialDirectory(t, { inMemory: true }), "image")
  const moments = Array.from({ length: count }, (_, index) => {
    const at = random.uint32() % trace.events.length
    const mark = trace.events.findIndex(({ kind }, event) => kind === "mark" && event >= at)
    return index % 2 === 0 && mark !== -1 ? mark + 1 : at
  }).sort((a, b) => a - b)
  const model = new DiskModel([trace.parent])
  const heard: Heard = { committed: 0, prepared: undefined }
  const broken: Broken[] = []
  let applied = 0
  for (const [index, at] of moments.entries()) {
    for (; applied < at; applied += 1) {
      const event = trace.events[applied] as TraceEvent
      if (event.kind === "mark" && event.text !== "") hear(heard, event.text)
      model.apply(event)
    }
    const fate = fates[index % fates.length] as Fate
    writeImage(directory, trace, model.image(fate, random))
    await checkImage(directory, heard).catch((error: unknown) => broken.push({ fate, at, error }))
  }
  return broken
}

test(`after a crash at any of ${images} moments each transaction is there as a whole or not, and what was told is`, async (t) => {
  if (!meets(t, "strace")) return
  const trace = await traceProgram(t, "transacting", ["with"])
  const marks = trace.events.filter(({ kind }) => kind === "mark").length
  assert.ok(marks > 20, "the trace is too poor to prove anything")
  t.diagnostic(`${trace.events.length} events, ${marks} of them told`)
  await t.test("with the syncs that were made", async (u) => {
    for (const { fate, at, error } of await crash(u, trace, images)) {
      throw new Error(`a crash at event ${at} of ${trace.events.length}, unsynced writes: ${fate}`, { cause: error })
    }
  })
  await t.test("and with the syncs taken out of the trace the check goes red", async (u) => {
    const red = (await crash(u, withoutFileSyncs(trace), long ? 30 : 12)).filter(
      ({ error }) => error instanceof assert.AssertionError || error instanceof MillraceError,
    )
    u.diagnostic(`${red.length} images had lost something`)
    assert.ok(red.length > 0, "nothing was lost without the syncs: the check proves nothing")
  })
})
