/**
 * Joins the compiled files of each package that `millrace` loads at its start into one, dist/bundle.js, which the package's `exports` name:
 * hundreds of small files take Node ten times as long to load. Declarations and source maps stay those of the files. Run by
 * `npm run build`, after tsc.
 */
import { join } from "node:path"
import { build } from "esbuild"

const root = join(import.meta.dirname, "..")
const packages = ["packages/contract", "packages/runtime", "packages/core", "packages/millrace", "drivers/embedded"]

for (const name of packages) {
  const dist = join(root, name, "dist")
  const { warnings } = await build({
    entryPoints: [join(dist, "index.js")],
    outfile: join(dist, "bundle.js"),
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node22.15",
    legalComments: "none",
    minifyWhitespace: true,
    minifySyntax: true,
    sourcemap: true,
    sourcesContent: false,
  })
  if (warnings.length > 0) throw new Error(`${name}: ${warnings.map(({ text }) => text).join("\n")}`)
}
