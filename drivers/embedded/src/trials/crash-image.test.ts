/**
 * Durability where SIGKILL cannot reach: after a crash of the machine. A program's writes and syncs are traced; at many moments of the
 * trace the disk is rebuilt as a crash may have left it, opened, and compared with what the program had been told by then.
 */
import assert from "node:assert/strict"
import test from "node:test"
import type { Position } from "@millrace/contract"
import { assertKept, assertLost, type Broken, crash } from "./crash-images.ts"
import { checkSound, Ledger } from "./ledger.ts"
import { long, meets } from "./needs.ts"
import { openThreadSession } from "./thread-session.ts"
import { type Trace, traceProgram, withoutFileSyncs } from "./traced-program.ts"
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

function crashAt(
  t: test.TestContext,
  trace: Trace,
  { count, seed }: { count: number; seed: number },
): Promise<Broken[]> {
  const told: Told = { synced: new Ledger(), limited: new Ledger(), offsets: new Map() }
  return crash(t, {
    trace,
    count,
    seed,
    hear: (mark) => hear(told, mark),
    check: (directory) => checkImage(directory, told),
  })
}

/** Before the first confirmation there is nothing to lose. */
function assertConfirmedLost(t: test.TestContext, trace: Trace, broken: readonly Broken[]): void {
  const confirmed = trace.events.findIndex((event) => event.kind === "mark" && event.text.trim().startsWith("synced "))
  assert.ok(confirmed !== -1, "nothing was confirmed: the check proves nothing")
  assertLost(
    t,
    broken.filter(({ at }) => at > confirmed),
  )
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
    assertKept(trace, await crashAt(u, trace, { count: images, seed: 1 }))
  })

  await t.test("and with the syncs taken out of the trace the check goes red", async (u) => {
    const unsynced = withoutFileSyncs(trace)
    assertConfirmedLost(u, unsynced, await crashAt(u, unsynced, { count: 20, seed: 2 }))
  })
})

test("with the syncs taken out of the program the check goes red", async (t) => {
  if (!meets(t, "strace")) return
  const trace = await traceProgram(t, "traced", ["3", "40", "without"])
  assertConfirmedLost(t, trace, await crashAt(t, trace, { count: 20, seed: 3 }))
})
