/** The same after a crash of the machine: what was told to be committed or prepared is there, and everything else is there as a whole or not. */
import assert from "node:assert/strict"
import test from "node:test"
import { assertKept, assertLost, type Broken, crash } from "./crash-images.ts"
import { long, meets } from "./needs.ts"
import { openThreadSession } from "./thread-session.ts"
import { type Trace, traceProgram, withoutFileSyncs } from "./traced-program.ts"
import { nextOf, numbersOf, outputPartitions, outputRecords, outputs, Transacting } from "./transacting.ts"
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

function crashAt(t: test.TestContext, trace: Trace, count: number): Promise<Broken[]> {
  const heard: Heard = { committed: 0, prepared: undefined }
  return crash(t, {
    trace,
    count,
    seed: 4,
    hear: (mark) => hear(heard, mark),
    check: (directory) => checkImage(directory, heard),
  })
}

test(`after a crash at any of ${images} moments each transaction is there as a whole or not, and what was told is`, async (t) => {
  if (!meets(t, "strace")) return
  const trace = await traceProgram(t, "transacting", ["with"])
  const marks = trace.events.filter(({ kind }) => kind === "mark").length
  assert.ok(marks > 20, "the trace is too poor to prove anything")
  t.diagnostic(`${trace.events.length} events, ${marks} of them told`)
  await t.test("with the syncs that were made", async (u) => {
    assertKept(trace, await crashAt(u, trace, images))
  })
  await t.test("and with the syncs taken out of the trace the check goes red", async (u) => {
    assertLost(u, await crashAt(u, withoutFileSyncs(trace), long ? 30 : 12))
  })
})
