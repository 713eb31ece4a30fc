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

const main = join(import.meta.dirname, "main.ts")
const busiest = /^DFW +1,103 .*\nORD +1,095 .*\nATL +846 /m
const equal = "All figures of all 220 airports are equal to those computed straight from the file."

interface Run {
  readonly child: ChildProcess
  /** All that was printed so far. */
  output(): string
  readonly ended: Promise<number | null>
}

function start(t: TestContext, options: { readonly temporary: string; readonly keep?: string }): Run {
  const args = [main, "--rate", "20000", ...(options.keep === undefined ? [] : ["--keep", options.keep])]
  const child = spawn(process.execPath, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TMPDIR: options.temporary },
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

test("one worker is killed, another takes over, and every figure is right", { timeout: 60_000 }, async (t) => {
  const temporary = await directory(t)
  const run = start(t, { temporary })
  assert.equal(await run.ended, 0, run.output())
  assert.match(run.output(), busiest)
  assert.ok(run.output().includes(equal), run.output())
  assert.match(run.output(), /Worker 1 is killed when [\d,]+ flights are counted/)
  assert.match(run.output(), /[1-9][\d,]* flights were delivered more than once/)
  assert.match(
    run.output(),
    /The other worker had partitions [\d, ]+ of the killed one after \d+ ms, .* first flight after \d+ ms/,
  )
  assert.deepEqual(await readdir(temporary), [], "the temporary directory is removed")
})

test("on kept data a second run says so and shows the same", { timeout: 60_000 }, async (t) => {
  const temporary = await directory(t)
  const keep = join(temporary, "kept data, 100%?")
  const first = start(t, { temporary, keep })
  assert.equal(await first.ended, 0, first.output())
  const second = start(t, { temporary, keep })
  assert.equal(await second.ended, 0, second.output())
  assert.match(second.output(), /is done already: 20,000 flights/)
  assert.doesNotMatch(second.output(), /killed/)
  assert.match(second.output(), busiest)
  assert.ok(second.output().includes(equal))
})

test("killed as a whole, the job goes on where it stood", { timeout: 60_000 }, async (t) => {
  const temporary = await directory(t)
  const keep = join(temporary, "data")
  const first = start(t, { temporary, keep })
  await until(first, /Worker 1 is killed/)
  first.child.kill("SIGKILL")
  assert.equal(await first.ended, null)
  const second = start(t, { temporary, keep })
  assert.equal(await second.ended, 0, second.output())
  assert.match(second.output(), /Going on in .*, where [\d,]+ flights are published and [1-9][\d,]* are counted/)
  assert.ok(second.output().includes(equal), second.output())
})
