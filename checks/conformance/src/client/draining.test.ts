/** A process over the embedded log that is told to end while another one keeps it from writing. */
import assert from "node:assert/strict"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { describe, type TestContext, test } from "node:test"
import { connect } from "millrace"
import { takeTexts } from "../rig/client-rig.ts"
import { DrainChild } from "../rig/drain-child.ts"
import { numbered } from "../rig/records.ts"

const records = 1_000

describe("a process over the embedded log that gets SIGTERM", () => {
  test("A-02: delivers all that it accepted, also when the log was not free for a while, and ends by itself with 0", async (t) => {
    const directory = await fresh(t)
    const child = new DrainChild([`file:${directory}`, "s", "t", `${records}`, "30000"])
    await child.told("ready")
    const release = holdLog(directory)
    try {
      child.go()
      await child.told("accepted")
      child.terminate()
      setTimeout(release, 2_000)
      const closed = await child.told("closed")
      assert.ok(Number(closed.ms) > 1_500, `the close took ${closed.ms} ms, although the log was not free for 2 s`)
      assert.equal(await child.exited(), 0)
    } finally {
      release()
    }
    const client = await connect(`file:${directory}`)
    await using reader = client.stream("s").topic("t").consumer(undefined, 0)
    assert.deepEqual(await takeTexts(reader, records), numbered("r", 0, records))
    await client.close()
  })

  test("A-02: says at its deadline which records were not delivered, and ends by itself", async (t) => {
    const directory = await fresh(t)
    const child = new DrainChild([`file:${directory}`, "s", "t", `${records}`, "3000"])
    await child.told("ready")
    const release = holdLog(directory)
    try {
      child.go()
      await child.told("accepted")
      child.terminate()
      const failed = await child.told("failed")
      assert.ok(Number(failed.ms) >= 2_900 && Number(failed.ms) < 5_500, `the close took ${failed.ms} ms`)
      assert.deepEqual(failed.payloads, numbered("r", 0, records))
      assert.equal(await child.exited(), 3)
    } finally {
      release()
    }
  })
})

async function fresh(t: TestContext): Promise<string> {
  const parent = await mkdtemp(join(tmpdir(), "millrace-draining-"))
  t.after(() => rm(parent, { recursive: true, force: true }))
  return join(parent, "log")
}

/** Keeps every other process from writing, until the answer is called. */
function holdLog(directory: string): () => void {
  const database = new DatabaseSync(join(directory, "millrace.db"))
  database.exec("BEGIN IMMEDIATE")
  return () => {
    if (database.isOpen) database.close()
  }
}
