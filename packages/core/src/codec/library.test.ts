/** Codecs bring no library along: each is loaded when its codec is made, and one that is missing is told with what installs it. */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import process from "node:process"
import { type TestContext, test } from "node:test"
import { pathToFileURL } from "node:url"
import { promisify } from "node:util"
import { UnsupportedError } from "@millrace/contract"
import { build, type Format } from "esbuild"
import { type LibraryName, loadLibrary } from "./library.ts"

const run = promisify(execFile)
/** How each codec with a library is made, by the library's name. */
const makings = {
  ajv: "jsonSchema({})",
  "apache-arrow": "arrow()",
  avsc: `avro("string")`,
  bson: "bson()",
  cborg: "cbor()",
  msgpackr: "msgpack()",
  protobufjs: `protobuf({ proto: "", message: "M" })`,
}
const rooms = ["json-schema", "arrow", "avro", "bson", "cbor", "msgpack", "protobuf", "json", "text", "bytes"]
/** The compiled form of this test stands beside the compiled codecs. */
const extension = import.meta.filename.slice(-3)
const conditions = extension === ".ts" ? ["millrace-source"] : []
/** As Millrace is installed: without the condition that leads to the sources. */
const env = { ...process.env, NODE_OPTIONS: "" }

async function emptyDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "millrace-codecs-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  return directory
}

async function bundle(contents: string, outfile: string): Promise<void> {
  await build({
    stdin: { contents, resolveDir: import.meta.dirname, loader: "js" },
    bundle: true,
    platform: "node",
    target: "node22.15",
    format: outfile.endsWith(".cjs") ? "cjs" : ("esm" satisfies Format),
    conditions,
    outfile,
    logLevel: "silent",
  })
}

test("a library that is not installed is told with what installs it", () => {
  assert.throws(
    () => loadLibrary("no-such-library" as LibraryName, "Nothing"),
    (error) =>
      error instanceof UnsupportedError &&
      error.message ===
        'Nothing needs the package "no-such-library", which is not installed: npm install no-such-library',
  )
})

for (const format of ["mjs", "cjs"]) {
  test(`every codec says so where nothing is installed, in one ${format} file`, async (t) => {
    const file = join(await emptyDirectory(t), `program.${format}`)
    const tries = Object.values(makings).map(
      (making) => `try { ${making} } catch (e) { console.log(e.kind, e.message) }`,
    )
    const imports = rooms.map((room) => `import * as room_${room.replace("-", "_")} from "./${room}${extension}"`)
    const names = rooms.map((room) => `room_${room.replace("-", "_")}`)
    await bundle(
      `${imports.join("\n")}\nconst { jsonSchema, arrow, avro, bson, cbor, msgpack, protobuf } = Object.assign({}, ${names.join(", ")})\n${tries.join("\n")}`,
      file,
    )
    const { stdout } = await run(process.execPath, [file], { cwd: join(file, ".."), env })
    const lines = stdout.trimEnd().split("\n")
    assert.deepEqual(
      lines.map(
        (line) =>
          /^unsupported .* needs the package "([\w-]+)", which is not installed: npm install \1$/.exec(line)?.[1],
      ),
      Object.keys(makings),
    )
  })
}

test("loading the core loads none of the libraries, and making a codec loads its own", async (t) => {
  const script = join(await emptyDirectory(t), "program.mjs")
  const source = (name: string): string => JSON.stringify(pathToFileURL(join(import.meta.dirname, name)).href)
  await writeFile(
    script,
    `import { registerHooks } from "node:module"
    const loaded = []
    registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) })
    const libraries = () => [...new Set(loaded.flatMap((url) => /node_modules\\/((?!@millrace)[^/]+)/.exec(url)?.[1] ?? []))]
    await import(${source(`../index${extension}`)})
    for (const room of ${JSON.stringify(rooms)}) await import(${source("./")} + room + ${JSON.stringify(extension)})
    console.log(loaded.length > 50, libraries().join())
    const { cbor } = await import(${source(`./cbor${extension}`)})
    cbor()
    console.log(libraries().join())`,
  )
  const { stdout } = await run(
    process.execPath,
    [...conditions.map((condition) => `--conditions=${condition}`), script],
    { env },
  )
  assert.equal(stdout, "true \ncborg\n")
})

test("the core as one file is there within 60 ms", async (t) => {
  const file = join(await emptyDirectory(t), "core.mjs")
  await bundle(`export * from "../index${extension}"`, file)
  const program = `const start = performance.now(); await import(${JSON.stringify(pathToFileURL(file).href)}); console.log(performance.now() - start)`
  let shortest = Infinity
  let shortestStart = Infinity
  const limit = (): number => Math.max(60, 1.5 * shortestStart)
  // Others use the machine too: what counts is the shortest, and on a slow machine how it compares to the start of Node itself.
  for (let round = 0; round < 10 && shortest > limit(); round++) {
    const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program], { env })
    shortest = Math.min(shortest, Number(stdout))
    const start = performance.now()
    await run(process.execPath, ["-e", "0"], { env })
    shortestStart = Math.min(shortestStart, performance.now() - start)
  }
  assert.ok(
    shortest <= limit(),
    `took ${shortest.toFixed(0)} ms, and Node alone starts in ${shortestStart.toFixed(0)} ms`,
  )
})
