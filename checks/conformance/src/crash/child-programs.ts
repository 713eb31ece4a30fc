/**
 * The programs of children that are killed. From the sources each would load, and strip of types, hundreds of files at its start, which
 * takes it longer than it lives: they are joined once, with the log's worker, into a few files.
 */
import { execFile } from "node:child_process"
import { extname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { build, type Plugin } from "esbuild"

/** A child's module, beside this one. */
export type ChildProgram =
  | "writer-child"
  | "consumer-child"
  | "reader-child"
  | "processor-child"
  | "coordinator-child"
  | "queue-worker-child"
  | "warm-child"

const programs: readonly ChildProgram[] = [
  "writer-child",
  "consumer-child",
  "reader-child",
  "processor-child",
  "coordinator-child",
  "queue-worker-child",
  "warm-child",
]

/** Sources run as `.ts`. Compiled tests are `.js`, and load compiled packages, each of which is one file already. */
const fromSources = extname(fileURLToPath(import.meta.url)) === ".ts"

/** Joins the programs, and fills Node's cache of compiled code, so that one child after another starts fast. @param cache A directory for both */
export async function prepareChildren(cache: string): Promise<void> {
  if (fromSources) await bundle(cache)
  await promisify(execFile)(process.execPath, [programPath("warm-child", cache)], { env: childEnvironment(cache) })
}

/** Where a child's program is, once `prepareChildren` has come back. */
export function programPath(program: ChildProgram, cache: string): string {
  return fromSources ? join(cache, `${program}.mjs`) : fileURLToPath(new URL(`./${program}.js`, import.meta.url))
}

/** What a child inherits. */
export function childEnvironment(cache: string): NodeJS.ProcessEnv {
  return { ...process.env, NODE_COMPILE_CACHE: join(cache, "node") }
}

async function bundle(outdir: string): Promise<void> {
  const entryPoints: Record<string, string> = {
    // The log looks for it beside its own code.
    worker: fileURLToPath(new URL("./worker.ts", import.meta.resolve("@millrace/embedded"))),
  }
  for (const program of programs) entryPoints[program] = fileURLToPath(new URL(`./${program}.ts`, import.meta.url))
  const { warnings } = await build({
    entryPoints,
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    conditions: ["millrace-source"],
    external: ["@opentelemetry/api"],
    plugins: [inPlace],
    platform: "node",
    format: "esm",
    target: "node24",
    legalComments: "none",
    logLevel: "error",
    // Packages in CommonJS ask for Node's modules by it.
    banner: {
      js: 'import { createRequire as millraceRequire } from "node:module"; const require = millraceRequire(import.meta.url);',
    },
  })
  if (warnings.length > 0) throw new Error(warnings.map(({ text }) => text).join("\n"))
}

/** Native code stays where it is installed. */
const inPlace: Plugin = {
  name: "native code in place",
  setup({ onLoad }) {
    onLoad({ filter: /\.node$/ }, ({ path }) => ({
      contents: `module.exports = process.getBuiltinModule("node:module").createRequire("/")(${JSON.stringify(path)})`,
    }))
  },
}
