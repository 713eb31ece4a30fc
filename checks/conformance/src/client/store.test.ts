/** The public API on a directory: opened twice, damaged, forbidden, from a newer release; and processes that end by themselves. */
import assert from "node:assert/strict"
import { execFile, spawnSync } from "node:child_process"
import { chmod, chown, mkdir, mkdtemp, readFile, rm, stat, symlink, truncate, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { extname, join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { describe, type TestContext, test } from "node:test"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { MillraceError } from "@millrace/contract"
import { connect } from "millrace"
import { encode, fill, takeTexts } from "../rig/client-rig.ts"
import { numbered } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

const run = promisify(execFile)
const root = process.getuid?.() === 0

/** The user without rights that Linux has everywhere. */
const nobody = 65_534

/** A child that has not ended by itself after so long hangs, also on a busy machine; in ms. */
const childTimeoutMs = 90_000

describe("field reports: a directory", () => {
  test("A-36: two clients of one directory work together, also through a symbolic link, and one's end leaves the other alone", async (t) => {
    const directory = await fresh(t)
    const link = `${directory}-link`
    await mkdir(directory, { recursive: true })
    await symlink(directory, link)
    t.after(() => rm(link, { force: true }))
    const clients = await Promise.all([directory, directory, link].map((path) => connect(`file:${path}`)))
    const [one, two, three] = clients
    assert.ok(one !== undefined && two !== undefined && three !== undefined)
    const topicOf = (client: typeof one) => client.stream("s").topic("t")
    await topicOf(one).ensure(1)
    await Promise.all(
      clients.map(async (client, index) => {
        const producer = topicOf(client).producer()
        for (let n = 0; n < 20; n++) await producer.send(encode(`${index}:${n}`))
      }),
    )
    await one.close()
    const reader = topicOf(three).consumer("reader", 0)
    const seen = await takeTexts(reader, 60)
    for (let index = 0; index < 3; index++) {
      assert.deepEqual(
        seen.filter((text) => text.startsWith(`${index}:`)),
        numbered(`${index}:`, 0, 20),
      )
    }
    await fill(topicOf(two), ["after the close"])
    assert.deepEqual(await takeTexts(reader, 1), ["after the close"])
    await Promise.all([two.close(), three.close()])
  })

  test("what was written is there when the directory is opened again", async (t) => {
    const directory = await fresh(t)
    for (let round = 0; round < 3; round++) {
      const client = await connect(`file:${directory}`)
      const topic = client.stream("s").topic("t")
      await topic.ensure(1)
      await fill(topic, numbered("r", round * 5, round * 5 + 5))
      assert.deepEqual(await takeTexts(topic.consumer(undefined, 0), round * 5 + 5), numbered("r", 0, round * 5 + 5))
      await client.close()
    }
  })

  for (const [name, harm] of [
    ["cut to half", async (file: string) => truncate(file, Math.floor((await stat(file)).size / 2))],
    ["cut to nothing", (file: string) => truncate(file, 0)],
    ["overwritten in the middle", (file: string) => overwrite(file)],
    ["replaced by something else", (file: string) => writeFile(file, "no log of ours\n".repeat(2_000))],
  ] as const) {
    test(`A-34: a data file that is ${name} gives a typed error or the right records, never others`, async (t) => {
      const directory = await fresh(t)
      const written = await write100(directory)
      await harm(join(directory, "millrace.db"))
      const first = await readBack(directory)
      assert.ok(first instanceof MillraceError || isPrefix(first, written), String(first))
      const second = await readBack(directory)
      if (first instanceof MillraceError) assert.ok(second instanceof MillraceError && second.kind === first.kind)
      else assert.deepEqual(second, first)
    })
  }

  test("a store of a newer format is refused and names both versions", async (t) => {
    const directory = await fresh(t)
    await write100(directory)
    const database = new DatabaseSync(join(directory, "millrace.db"))
    const row = database.prepare("PRAGMA user_version").get() as { user_version: number }
    database.exec(`PRAGMA user_version = ${row.user_version + 7}`)
    database.close()
    await refused(() => connect(`file:${directory}`), {
      kind: "storage",
      says: [String(row.user_version + 7), String(row.user_version), directory],
      retryable: false,
    })
  })

  test("a path that is a file is refused by name", async (t) => {
    const directory = await fresh(t)
    await mkdir(directory, { recursive: true })
    const file = join(directory, "file")
    await writeFile(file, "")
    const error = await refused(() => connect(`file:${file}`), { kind: "invalid", says: [file, "directory"] })
    assert.equal(error.retryable, false)
  })

  test("a directory that may not be entered is refused as a matter of permission", {
    skip: withoutRights().reason ?? false,
  }, async (t) => {
    const directory = await fresh(t)
    await mkdir(directory, { recursive: true })
    const closed = join(directory, "closed")
    await mkdir(closed, { mode: 0o700 })
    if (root) await chown(closed, nobody, nobody)
    else await chmod(closed, 0o000)
    const answer = await child(["connect", `file:${join(closed, "log")}`], withoutRights().command)
    assert.match(answer, /^permission: .*closed/)
  })

  test("a process ends by itself after close, whatever it had open", async (t) => {
    const directory = await fresh(t)
    assert.match(await child(["close", `file:${directory}`]), /^closed/)
  })

  test("A-03: a process whose connect fails ends by itself", async (t) => {
    const directory = await fresh(t)
    await mkdir(directory, { recursive: true })
    await writeFile(join(directory, "file"), "")
    assert.match(await child(["connect", `file:${join(directory, "file", "log")}`]), /^invalid: .*file/)
  })
})

async function fresh(t: TestContext): Promise<string> {
  const parent = await mkdtemp(join(tmpdir(), "millrace-store-"))
  t.after(() => rm(parent, { recursive: true, force: true }))
  return join(parent, "log")
}

/** Single sends and one batch, so that small and large commits are there. */
async function write100(directory: string): Promise<string[]> {
  const client = await connect(`file:${directory}`)
  const topic = client.stream("s").topic("t")
  await topic.ensure(1)
  const written = numbered("r", 0, 100)
  const producer = topic.producer()
  for (const payload of written.slice(0, 50)) await producer.send(encode(payload))
  await producer.sendBatch(written.slice(50).map(encode))
  await client.close()
  return written
}

/** All that can be read, or the error that tells why not. */
async function readBack(directory: string): Promise<string[] | MillraceError> {
  try {
    const client = await connect(`file:${directory}`)
    try {
      const topic = client.stream("s").topic("t")
      const [marks] = await topic.watermarks()
      await using reader = topic.consumer(undefined, 0, { onOutOfRange: "fail" })
      return await takeTexts(reader, Number((marks?.end ?? 0n) - (marks?.first ?? 0n)))
    } finally {
      await client.close()
    }
  } catch (error) {
    if (error instanceof MillraceError) return error
    throw error
  }
}

async function overwrite(file: string): Promise<void> {
  const bytes = await readFile(file)
  const half = Math.floor(bytes.length / 2)
  bytes.fill(0xa5, half, Math.min(half + 40_000, bytes.length))
  await writeFile(file, bytes)
}

function isPrefix(seen: readonly string[], written: readonly string[]): boolean {
  return seen.every((payload, index) => payload === written[index])
}

/**
 * How a child is started so that the rights of files hold for it. Root is above them; without two of its capabilities it is not, and can
 * still read this repository, wherever it lies.
 */
function withoutRights(): { readonly command: readonly string[]; readonly reason?: string } {
  if (!root) return { command: [] }
  const command = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
  ]
  const tried = spawnSync("setpriv", [...command.slice(1), "true"], { stdio: "ignore" })
  return tried.status === 0 ? { command } : { command, reason: "needs setpriv: root is above the rights of files" }
}

/** Runs the child script to its own end and answers what it printed. A child that does not end by itself fails the test. */
async function child(args: readonly string[], prefix: readonly string[] = []): Promise<string> {
  const here = fileURLToPath(import.meta.url)
  const script = fileURLToPath(new URL(`./store-child${extname(here)}`, import.meta.url))
  const [program, ...rest] = [...prefix, process.execPath, script, ...args]
  const { stdout } = await run(program as string, rest, { timeout: childTimeoutMs })
  return stdout.trim()
}
