/** The program as a user runs it, in a process of its own. */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { promisify } from "node:util"

const main = join(import.meta.dirname, "main.ts")
const mailboxes = ["ann", "ben", "cem", "nobody"].map((name) => `${name}@example.org`)

/** Runs it, and answers its lines. */
async function run(...args: string[]): Promise<string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [main, ...args])
  return stdout.trimEnd().split("\n")
}

/** To whom mails were sent, in alphabetical order. */
function sent(lines: readonly string[]): string[] {
  return lines.flatMap((line) => /^worker [12] sent a mail to (\S+), delivery \d+$/.exec(line)?.[1] ?? []).sort()
}

test("each mail is sent: one at its second delivery, one after it came back from the dead-letter topic", async () => {
  const lines = await run()
  assert.deepEqual(sent(lines), mailboxes)
  assert.equal(lines.filter((line) => line.endsWith("the mail server is busy; next: retry")).length, 1)
  assert.ok(lines.some((line) => line.endsWith("there is no mailbox nobody@example.org; next: deadLetter")))
  const redriven = lines.findIndex((line) => line.startsWith("nobody@example.org has a mailbox now"))
  assert.match(lines[redriven + 1] as string, /sent a mail to nobody@example\.org, delivery 1$/)
})

test("in a directory, a second run sends its own mails and none of the first", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "millrace-queue-test-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  for (let turn = 0; turn < 2; turn++) assert.deepEqual(sent(await run(`file:${directory}`)), mailboxes)
})
