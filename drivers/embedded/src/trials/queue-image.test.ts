/** Settlements after a crash of the machine: what was confirmed never comes again, and everything else does or does not, but once at a time. */
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
import { trialDirectory } from "./trial-directory.ts"
import { trialTopic, verify } from "./trial-log.ts"
import { trialQueue } from "./trial-queue.ts"

const images = long ? 1_500 : 40

/** What the program had been told by a moment of the trace. */
interface Heard {
  appended: number
  /** Settlements that were on their way, and those that were confirmed. */
  readonly asked: Set<number>
  readonly settled: Set<number>
}

function hear(heard: Heard, mark: string): void {
  const [what, number] = mark.trim().split(" ")
  if (what === "appended") heard.appended = Number(number)
  if (what === "asked") heard.asked.add(Number(number))
  if (what === "settled") heard.settled.add(Number(number))
}

/** Takes all that comes from the queue that a crash left. */
async function checkImage(directory: string, { appended, asked, settled }: Heard): Promise<void> {
  const session = openThreadSession(directory)
  try {
    if (appended === 0) return
    const queue = await session.queues.open(trialTopic, trialQueue.name, trialQueue.spec)
    const seen = new Set<number>()
    for (;;) {
      const messages = await queue.pull({ maxMessages: 100, maxBytes: 1 << 20, maxWaitMs: 0 })
      if (messages.length === 0) break
      for (const { offset } of messages) {
        assert.ok(!seen.has(Number(offset)), `message ${offset} came twice`)
        seen.add(Number(offset))
      }
    }
    for (const offset of settled) assert.ok(!seen.has(offset), `message ${offset} came again after its settlement`)
    for (let offset = 0; offset < appended; offset += 1)
      assert.ok(seen.has(offset) || asked.has(offset), `message ${offset} is lost`)
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
  const random = seededRandom(8)
  const directory = join(trialDirectory(t, { inMemory: true }), "image")
  const moments = Array.from({ length: count }, (_, index) => {
    const at = random.uint32() % trace.events.length
    const mark = trace.events.findIndex(({ kind }, event) => kind === "mark" && event >= at)
    return index % 2 === 0 && mark !== -1 ? mark + 1 : at
  }).sort((a, b) => a - b)
  const model = new DiskModel([trace.parent])
  const heard: Heard = { appended: 0, asked: new Set(), settled: new Set() }
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

test(`after a crash at any of ${images} moments no message comes again whose settlement was confirmed`, async (t) => {
  if (!meets(t, "strace")) return
  const trace = await traceProgram(t, "queue-traced", ["12", "with"])
  const settled = trace.events.filter((event) => event.kind === "mark" && event.text.includes("settled")).length
  assert.ok(settled > 20, "the trace is too poor to prove anything")
  t.diagnostic(`${trace.events.length} events, ${settled} settlements confirmed`)
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
