/**
 * A child's program in few files. From the sources each child loads, and strips of types, the whole driver, which takes it longer than a
 * trial that kills it lets it live.
 */
import { fileURLToPath } from "node:url"
import { build } from "esbuild"
import { trialDirectory } from "./trial-directory.ts"
import type { Owner } from "./trial-end.ts"

/**
 * Joins `<script>.child.ts` with all that it loads, beside the log's worker, for `startChild` to run.
 * @returns The directory, which goes with the test; undefined where the tests are compiled: so is the driver, then.
 */
export async function joinChild(t: Owner, script: string): Promise<string | undefined> {
  if (!import.meta.url.endsWith(".ts")) return undefined
  const directory = trialDirectory(t, { inMemory: true })
  const source = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
  await build({
    entryPoints: { [script]: source(`./${script}.child.ts`), worker: source("../worker.ts") },
    outdir: directory,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    conditions: ["millrace-source"],
    platform: "node",
    format: "esm",
    target: "node22.15",
    legalComments: "none",
    logLevel: "error",
  })
  return directory
}
