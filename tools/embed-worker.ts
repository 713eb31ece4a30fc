/**
 * Puts the embedded log's worker into the package as text, so that a program which is bundled into one file finds it. Bundles
 * drivers/embedded/dist/worker.js into one CommonJS script and writes it to dist/worker-code.js. Run by `npm run build`, after tsc.
 */
import { writeFile } from "node:fs/promises"
import { join } from "node:path"
import { build } from "esbuild"

const root = join(import.meta.dirname, "..")
const dist = join(root, "drivers", "embedded", "dist")

const { outputFiles, warnings } = await build({
  entryPoints: [join(dist, "worker.js")],
  bundle: true,
  // Their own bundles are made later.
  alias: {
    "@millrace/contract": join(root, "packages", "contract", "dist", "index.js"),
    "@millrace/runtime": join(root, "packages", "runtime", "dist", "index.js"),
  },
  write: false,
  platform: "node",
  format: "cjs",
  target: "node22.15",
  legalComments: "none",
  minifySyntax: true,
  minifyWhitespace: true,
})
const [output] = outputFiles
if (output === undefined || outputFiles.length !== 1) throw new Error(`expected one file, got ${outputFiles.length}`)
// Import.meta in CommonJS is such a warning: the worker would start and then not find its way.
if (warnings.length > 0) throw new Error(warnings.map(({ text }) => text).join("\n"))
await writeFile(join(dist, "worker-code.js"), `export const workerCode = ${JSON.stringify(output.text)}\n`)
console.log(`worker-code.js: ${output.contents.length} bytes`)
