/** What README.md and docs/ show must compile, and the README's program must do what the README says. */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { after, before, test } from "node:test"
import { promisify } from "node:util"
import { transform } from "esbuild"
import type { CodeBlock } from "./code-blocks.ts"
import { codeBlocks } from "./code-blocks.ts"

const run = promisify(execFile)
const root = join(import.meta.dirname, "..", "..", "..")
// Inside the repository, so that the name "millrace" is found.
const parent = join(root, "checks", "docs", "dist")
let folder: string

before(async () => {
  await mkdir(parent, { recursive: true })
  folder = await mkdtemp(join(parent, "blocks-"))
})

after(() => rm(folder, { recursive: true, force: true }))

async function listDocs(): Promise<string[]> {
  const docs = await readdir(join(root, "docs"), { recursive: true })
  return ["README.md", ...docs.filter((name) => name.endsWith(".md")).map((name) => join("docs", name))]
}

async function blocksOf(doc: string): Promise<CodeBlock[]> {
  return codeBlocks(await readFile(join(root, doc), "utf8"))
}

test("every block of TypeScript compiles", async () => {
  const origins: string[] = []
  for (const doc of await listDocs()) {
    for (const { language, code, line } of await blocksOf(doc)) {
      if (language !== "ts") continue
      await writeFile(join(folder, `block-${origins.length}.ts`), code)
      origins.push(`${doc}:${line}`)
    }
  }
  assert.ok(origins.length > 0, "no block of TypeScript was found")
  const options = {
    noEmit: true,
    composite: false,
    isolatedDeclarations: false,
    declaration: false,
    declarationMap: false,
  }
  const config = { extends: join(root, "tsconfig.base.json"), compilerOptions: options, include: ["block-*.ts"] }
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(config))
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc")
  const { stdout } = await run(process.execPath, [compiler, "-p", folder, "--pretty", "false"]).catch((error) => error)
  const named = String(stdout).replaceAll(/^.*block-(\d+)\.ts\(/gm, (_, index) => `${origins[Number(index)]} + (`)
  assert.equal(named, "")
})

test("the README's first program prints what the README says", async () => {
  const blocks = await blocksOf("README.md")
  const program = blocks.find(({ language }) => language === "ts")
  const output = blocks.find(({ language }) => language === "text")
  assert.ok(program !== undefined && output !== undefined)
  const { code } = await transform(program.code, { loader: "ts", format: "esm", target: "node22.15" })
  const file = join(folder, "program.mjs")
  await writeFile(file, code)
  const { stdout } = await run(process.execPath, [file], { cwd: dirname(file), timeout: 30_000 })
  assert.equal(stdout, output.code)
})

test("links between README.md and docs/ lead to files", async () => {
  for (const doc of await listDocs()) {
    const text = await readFile(join(root, doc), "utf8")
    for (const [, target] of text.matchAll(/\]\((?!https?:|#)([^)#\s]+)[^)]*\)/g)) {
      await assert.doesNotReject(
        readFile(join(root, dirname(doc), target as string)).catch(ignoreFolder),
        `${doc} → ${target}`,
      )
    }
  }
})

function ignoreFolder(error: NodeJS.ErrnoException): void {
  if (error.code !== "EISDIR") throw error
}
