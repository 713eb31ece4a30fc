/** The job as a user runs it, in processes of its own. */
import assert from "node:assert/strict"
import type { ChildProcess } from "node:child_process"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestContext } from "node:test"
import { test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { connect } from "millrace"
import { typedLedger } from "./ledger.ts"
import { keptPlace } from "./place.ts"
import { ledgerTopic } from "./topics.ts"

const main = join(import.meta.dirname, "main.ts")
const busiest = /^DFW +1,103 .*\nORD +1,095 .*\nATL +846 /m
const oneToOne = "Each flight has exactly one entry in the ledger, and each entry one flight."
const exactlyOnce = /^exactly once +20,000 +([\d,]+|-) +20,000 +0 +0 +equal$/m
const equal = "All figures of all 220 airports are equal to those computed straight from the file."

interface Run {
  readonly child: ChildProcess
  /** All that was printed so far. */
  output(): string
  readonly ended: Promise<number | null>
}

interface StartOptions {
  readonly temporary: string
  readonly keep?: string
  readonly args?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

function start(t: TestContext, { temporary, keep, args = [], env = {} }: StartOptions): Run {
  const all = [main, "--rate", "20000", ...(keep === undefined ? [] : ["--keep", keep]), ...args]
  const child = spawn(process.execPath, all, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, MILLRACE_URL: "", TMPDIR: temporary, ...env },
  })
  let text = ""
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (part) => (text += part))
  t.after(() => child.kill("SIGKILL"))
  return { child, output: () => text, ended: once(child, "close").then(([code]) => code) }
}

async function directory(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "millrace-flights-test-"))
  t.after(() => rm(path, { recursive: true, force: true }))
  return path
}

async function until(run: Run, condition: RegExp): Promise<void> {
  while (!condition.test(run.output())) {
    assert.equal(run.child.exitCode, null, run.output())
    await once(run.child.stdout as NodeJS.ReadableStream, "data")
  }
}

test("one worker is killed, another takes over, and every figure is right", { timeout: 150_000 }, async (t) => {
  const temporary = await directory(t)
  const run = start(t, { temporary })
  assert.equal(await run.ended, 0, run.output())
  assert.match(run.output(), busiest)
  assert.ok(run.output().includes(equal), run.output())
  assert.match(run.output(), /Worker 1 is killed when [\d,]+ flights are counted/)
  assert.match(run.output(), /[1-9][\d,]* flights were delivered more than once/)
  assert.match(run.output(), /Processor 1 is killed when [\d,]+ flights are entered/)
  assert.match(run.output(), /^at least once +20,000 +[1-9][\d,]* +snapshots +- +- +equal$/m)
  assert.match(run.output(), exactlyOnce)
  assert.ok(run.output().includes(oneToOne), run.output())
  assert.match(
    run.output(),
    /The other worker had partitions [\d, ]+ of the killed one after \d+ ms, .* first flight after \d+ ms/,
  )
  assert.deepEqual(await readdir(temporary), [], "the temporary directory is removed")
})

test("killed as a whole, the job goes on where it stood; run again, it says that all is done", {
  timeout: 170_000,
}, async (t) => {
  const temporary = await directory(t)
  const keep = join(temporary, "kept data, 100%?")
  const first = start(t, { temporary, keep })
  await until(first, /Worker 1 is killed/)
  first.child.kill("SIGKILL")
  assert.equal(await first.ended, null)
  const second = start(t, { temporary, keep })
  assert.equal(await second.ended, 0, second.output())
  assert.match(second.output(), /Going on in .*, where [\d,]+ flights are published and [1-9][\d,]* are counted/)
  assert.ok(second.output().includes(equal), second.output())
  assert.match(second.output(), exactlyOnce)

  const third = start(t, { temporary, keep })
  assert.equal(await third.ended, 0, third.output())
  assert.match(third.output(), /is done already: 20,000 flights/)
  assert.doesNotMatch(third.output(), /killed/)
  assert.match(third.output(), busiest)
  assert.ok(third.output().includes(equal))
  assert.match(third.output(), exactlyOnce)

  await enterAgain(keep)
  const fourth = start(t, { temporary, keep })
  assert.equal(await fourth.ended, 1, fourth.output())
  assert.match(fourth.output(), /^exactly once +20,000 +- +20,001 +0 +1 +\d+ differ$/m)
  assert.match(fourth.output(), /Flights and entries of the ledger are not one to one\./)
  assert.ok(!fourth.output().includes(oneToOne))
})

/** Enters a flight a second time, as a consumer that is killed between its send and its commit would. */
async function enterAgain(directory: string): Promise<void> {
  await using client = await connect(keptPlace(directory).url)
  const ledger = typedLedger(ledgerTopic(client, "flights"))
  await using reader = await ledger.records("first")
  const entry = await reader.next()
  assert.equal(entry.kind, "record")
  await ledger.publish(entry.value)
}

test("stopped, the job leaves nothing", { timeout: 150_000 }, async (t) => {
  const temporary = await directory(t)
  const run = start(t, { temporary })
  await until(run, /counted [1-9]/)
  run.child.kill("SIGINT")
  assert.equal(await run.ended, 1)
  assert.match(run.output(), /stopped by SIGINT/)
  assert.deepEqual(await readdir(temporary), [])
})

test("a log in memory, which the workers would not see, is refused", { timeout: 150_000 }, async (t) => {
  const run = start(t, { temporary: await directory(t), env: { MILLRACE_URL: "memory:" } })
  assert.equal(await run.ended, 1)
  assert.match(run.output(), /do not see a log in memory/)
})

test("without servers, all backends are the embedded one, and what was skipped is said", {
  timeout: 150_000,
}, async (t) => {
  const temporary = await directory(t)
  const nothing = { PATH: temporary, MILLRACE_SERVERS_CACHE: temporary, KAFKA_HOME: "" }
  const urls = { MILLRACE_KAFKA_URL: "", MILLRACE_NATS_URL: "", MILLRACE_IGGY_URL: "" }
  const run = start(t, { temporary, args: ["--all"], env: { ...nothing, ...urls } })
  assert.equal(await run.ended, 0, run.output())
  assert.match(run.output(), busiest)
  assert.match(run.output(), /^embedded log +[\d,]+\/s +[\d.]+ s +[\d,]+ +[\d,]+ ms +[\d,]+ ms +equal +yes$/m)
  for (const kind of ["kafka", "nats", "iggy"]) assert.match(run.output(), new RegExp(`^${kind} was skipped: no `, "m"))
  assert.match(run.output(), /All 1 that ran came to the same figures as the file\./)
})

for (const kind of ["kafka", "nats", "iggy"] as const) {
  test(`on ${kind} the figures are the same, and nothing is left there`, { timeout: 170_000 }, async (t) => {
    const reason = await serverNeed(kind)
    if (reason !== undefined) {
      t.skip(`needs ${kind}: ${reason}`)
      return
    }
    const { url } = await sharedServer(kind)
    const run = start(t, { temporary: await directory(t), env: { MILLRACE_URL: url } })
    assert.equal(await run.ended, 0, run.output())
    assert.match(run.output(), busiest)
    assert.ok(run.output().includes(equal), run.output())
    assert.match(run.output(), /Worker 1 is killed when [\d,]+ flights are counted/)
    await using client = await connect(url)
    if (client.manifest.transactions.supported) assert.match(run.output(), exactlyOnce)
    else assert.match(run.output(), /^Exactly once is left out on .+: .+\.$/m)
    const stream = /stream (flights-[0-9a-f]{8})/.exec(run.output())?.[1] ?? ""
    const left: string[] = []
    for await (const { stream: name, topics } of client.streams()) if (name === stream && topics > 0) left.push(name)
    assert.deepEqual(left, [])
  })
}
