/** What is published works: bundled into one file, worker included, where nothing else lies beside it; and installed from tarballs. */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestContext } from "node:test"
import { before, test } from "node:test"
import { promisify } from "node:util"
import type { Format } from "esbuild"
import { build } from "esbuild"

const run = promisify(execFile)
const root = join(import.meta.dirname, "..", "..", "..")
// The packages as others have them: without the condition that leads to the sources.
const env = { ...process.env, NODE_OPTIONS: "" }

const body = `
  async function main() {
    for (const url of ["memory:", "file:./data"]) {
      const client = await connect(url)
      const topic = client.stream("s").topic("t")
      await topic.ensure(2)
      await topic.publish().partition(1).payload(new TextEncoder().encode("hello from " + url)).send()
      const consumer = topic.consumer("reader", 1)
      const message = await consumer.nextWithin(10_000)
      console.log(new TextDecoder().decode(message.payload))
      await client.close()
    }
  }
  main()
`
const esm = `import { connect } from "millrace"\n${body}`
const cjs = `const { connect } = require("millrace")\n${body}`
/** Drivers with servers behind them: installed by those who use them, and bundled by nobody. */
const optional = ["@millrace/iggy", "@millrace/kafka", "@millrace/nats"]
const printed = "hello from memory:\nhello from file:./data\n"

before(async () => {
  // The compiled form of this test runs after a build.
  if (import.meta.filename.endsWith(".ts")) await run("npm", ["run", "build"], { cwd: root })
})

async function emptyDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "millrace-published-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  return directory
}

async function runsAlone(directory: string, name: string): Promise<void> {
  const { stdout } = await run(process.execPath, [name], { cwd: directory, env, timeout: 60_000 })
  assert.equal(stdout, printed)
}

for (const format of ["esm", "cjs"] as const satisfies readonly Format[]) {
  test(`one ${format} file, alone in a directory, writes and reads`, async (t) => {
    const directory = await emptyDirectory(t)
    const name = format === "esm" ? "program.mjs" : "program.cjs"
    await build({
      stdin: { contents: esm, resolveDir: import.meta.dirname },
      bundle: true,
      platform: "node",
      target: "node22.15",
      format,
      external: optional,
      outfile: join(directory, name),
      logLevel: "silent",
    })
    assert.deepEqual(await readdir(directory), [name])
    await runsAlone(directory, name)
    assert.deepEqual((await readdir(directory)).sort(), ["data", name])
  })
}

test("the packed packages, installed into an empty project, work from ESM and CommonJS", async (t) => {
  const directory = await emptyDirectory(t)
  const project = join(directory, "project")
  await mkdir(project)
  const rooms = ["packages/contract", "packages/runtime", "packages/core", "packages/millrace", "drivers/embedded"]
  await run("npm", ["pack", "--pack-destination", directory, ...rooms.map((room) => `./${room}`)], { cwd: root, env })
  const tarballs = (await readdir(directory)).filter((name) => name.endsWith(".tgz"))
  assert.equal(tarballs.length, rooms.length)
  await writeFile(join(project, "package.json"), "{}")
  const install = ["install", "--offline", "--no-audit", "--no-fund", ...tarballs.map((name) => join(directory, name))]
  await run("npm", install, { cwd: project, env })
  for (const [name, code] of [
    ["program.mjs", esm],
    ["program.cjs", cjs],
  ] as const) {
    await writeFile(join(project, name), code)
    await runsAlone(project, name)
    await rm(join(project, "data"), { recursive: true })
  }
  // What is not installed is left out of a bundle, and asking for it says what to install.
  const alone = join(directory, "alone")
  await mkdir(alone)
  const broker = `import { connect } from "millrace"\nconnect("kafka://localhost").catch((e) => console.log(e.kind, e.message))`
  await build({
    stdin: { contents: broker, resolveDir: project },
    bundle: true,
    platform: "node",
    target: "node22.15",
    format: "esm",
    outfile: join(alone, "program.mjs"),
    logLevel: "silent",
  })
  const { stdout } = await run(process.execPath, ["program.mjs"], { cwd: alone, env, timeout: 60_000 })
  assert.match(stdout, /^unsupported kafka: connection strings need the package @millrace\/kafka: npm install/)
})
