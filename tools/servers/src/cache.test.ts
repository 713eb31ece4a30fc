import assert from "node:assert/strict"
import { existsSync, readdirSync } from "node:fs"
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestContext } from "node:test"
import { test } from "node:test"
import { cached, cachedEntry } from "./cache.ts"
import { run } from "./programs.ts"

async function emptyCache(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "millrace-cache-test-"))
  const before = process.env.MILLRACE_SERVERS_CACHE
  process.env.MILLRACE_SERVERS_CACHE = directory
  t.after(async () => {
    if (before === undefined) delete process.env.MILLRACE_SERVERS_CACHE
    else process.env.MILLRACE_SERVERS_CACHE = before
    await rm(directory, { recursive: true, force: true })
  })
  return directory
}

/** The number of a process that is certainly over. */
async function deadProcess(): Promise<number> {
  return Number((await run("/bin/sh", ["-c", "echo $$"])).stdout)
}

test("an entry is filled once, whoever asks at the same time", async (t) => {
  const directory = await emptyCache(t)
  let fills = 0
  const ask = (): Promise<string> =>
    cached("thing", async (aside) => {
      fills++
      await writeFile(join(aside, "file"), "whole")
    })
  const paths = await Promise.all([ask(), ask(), ask()])
  assert.deepEqual(paths, Array(3).fill(join(directory, "thing")))
  assert.equal(fills, 1)
  assert.equal(await readFile(join(directory, "thing", "file"), "utf8"), "whole")
  assert.equal(cachedEntry("thing"), paths[0])
  assert.deepEqual(readdirSync(directory), ["thing"])
})

test("nobody sees an entry that is being filled, and a failed one leaves nothing", async (t) => {
  const directory = await emptyCache(t)
  const failing = cached("thing", async (aside) => {
    await writeFile(join(aside, "file"), "half")
    assert.equal(cachedEntry("thing"), undefined)
    throw new Error("the line broke")
  })
  await assert.rejects(failing, /the line broke/)
  assert.deepEqual(readdirSync(directory), [])
})

test("what a process left that died while filling is cleared away", { timeout: 10_000 }, async (t) => {
  const directory = await emptyCache(t)
  const dead = await deadProcess()
  await writeFile(join(directory, "thing.lock"), String(dead))
  await mkdir(join(directory, `thing.part-${dead}-abc`))
  await cached("thing", () => Promise.resolve())
  assert.deepEqual(readdirSync(directory), ["thing"])
})

test("a lock is waited for while its owner lives", { timeout: 10_000 }, async (t) => {
  const directory = await emptyCache(t)
  await writeFile(join(directory, "thing.lock"), String(process.ppid))
  let filled = false
  const asking = cached("thing", async () => {
    filled = true
  })
  await new Promise((resolve) => setTimeout(resolve, 500))
  assert.equal(filled, false)
  await rm(join(directory, "thing.lock"))
  await asking
  assert.ok(existsSync(join(directory, "thing")))
})
