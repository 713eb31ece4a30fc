/** Settlements after a crash of the machine: what was confirmed never comes again, and everything else does or does not, but once at a time. */
import assert from "node:assert/strict"
import test from "node:test"
import { assertKept, assertLost, type Broken, crash } from "./crash-images.ts"
import { long, meets } from "./needs.ts"
import { openThreadSession } from "./thread-session.ts"
import { type Trace, traceProgram, withoutFileSyncs } from "./traced-program.ts"
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

function crashAt(t: test.TestContext, trace: Trace, count: number): Promise<Broken[]> {
  const heard: Heard = { appended: 0, asked: new Set(), settled: new Set() }
  return crash(t, {
    trace,
    count,
    seed: 8,
    hear: (mark) => hear(heard, mark),
    check: (directory) => checkImage(directory, heard),
  })
}

test(`after a crash at any of ${images} moments no message comes again whose settlement was confirmed`, async (t) => {
  if (!meets(t, "strace")) return
  const trace = await traceProgram(t, "queue-traced", ["12", "with"])
  const settled = trace.events.filter((event) => event.kind === "mark" && event.text.includes("settled")).length
  assert.ok(settled > 20, "the trace is too poor to prove anything")
  t.diagnostic(`${trace.events.length} events, ${settled} settlements confirmed`)
  await t.test("with the syncs that were made", async (u) => {
    assertKept(trace, await crashAt(u, trace, images))
  })
  await t.test("and with the syncs taken out of the trace the check goes red", async (u) => {
    assertLost(u, await crashAt(u, withoutFileSyncs(trace), long ? 30 : 12))
  })
})
