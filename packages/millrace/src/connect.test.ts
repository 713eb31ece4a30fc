import assert from "node:assert/strict"
import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { env } from "node:process"
import type { TestContext } from "node:test"
import { test } from "node:test"
import { connect } from "./connect.ts"
import { CancelledError, InvalidError } from "./index.ts"

/** Where `memory:` logs of this test lie, so that leftovers are seen. */
async function temporary(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "millrace-connect-"))
  const before = env.TMPDIR
  env.TMPDIR = directory
  t.after(async () => {
    if (before === undefined) delete env.TMPDIR
    else env.TMPDIR = before
    await rm(directory, { recursive: true, force: true })
  })
  return directory
}

async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const value of source) all.push(value)
  return all
}

test("memory: is a log of its own for each client, with the default stream, and leaves nothing behind", async (t) => {
  const directory = await temporary(t)
  const one = await connect("memory:", { stream: "s" })
  const other = await connect("memory:")
  await one.topic("t").ensure()
  assert.equal((await readdir(directory)).length, 2)
  const streams = await collect(one.streams())
  assert.deepEqual(
    streams.map(({ stream }) => stream),
    ["s"],
  )
  assert.deepEqual(await collect(other.streams()), [])
  await one.close()
  await other.close()
  assert.deepEqual(await readdir(directory), [])
})

test("without an argument the environment names the log", async (t) => {
  await temporary(t)
  env.MILLRACE_CONNECTION_STRING = "memory:"
  env.MILLRACE_STREAM = "from-environment"
  t.after(() => {
    delete env.MILLRACE_CONNECTION_STRING
    delete env.MILLRACE_STREAM
  })
  await using client = await connect()
  assert.equal(client.topic("t").stream, "from-environment")
  await assert.rejects(connect("file:./other"), InvalidError)
  await assert.rejects(connect(undefined, { stream: "other" }), /"stream" is "other" but MILLRACE_STREAM/)
})

test("what is wrong is refused before anything is opened", async (t) => {
  const directory = await temporary(t)
  await assert.rejects(connect("kafka://host?nosuch=1"), /unknown option "nosuch"/)
  await assert.rejects(connect("memory:?nosuch=1"), /unknown option "nosuch"/)
  await assert.rejects(connect("memory:", { publishRetries: -1 }), InvalidError)
  await assert.rejects(connect("memory:", { signal: AbortSignal.abort() }), CancelledError)
  assert.deepEqual(await readdir(directory), [])
})

test("a session whose client cannot be made is closed", async (t) => {
  const directory = await temporary(t)
  await assert.rejects(connect("memory:", { stream: "" }), (error) => error instanceof InvalidError)
  assert.deepEqual(await readdir(directory), [])
})

test("a relative directory lies beside the program's working directory", async (t) => {
  const directory = await temporary(t)
  const before = process.cwd()
  process.chdir(directory)
  t.after(() => process.chdir(before))
  for (const [url, name] of [
    ["file:./dot", "dot"],
    ["file:bare", "bare"],
    ["file:./a%20b", "a b"],
  ] as const) {
    await (await connect(url)).close()
    assert.ok((await readdir(directory)).includes(name), name)
  }
  await (await connect(`file://${directory}/absolute`)).close()
  assert.ok((await readdir(directory)).includes("absolute"))
})
