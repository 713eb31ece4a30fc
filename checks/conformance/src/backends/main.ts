/** `npm run backends`: runs the conformance suite on every backend that can run here, and writes docs/backends.md. */
import { writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { serverNeed } from "@millrace/servers"
import { manifestPart, manifests } from "./page.ts"
import { resultsTable, runSuites } from "./results.ts"

const page = fileURLToPath(new URL("../../../../docs/backends.md", import.meta.url))
const suiteFile = (name: string): string => fileURLToPath(new URL(`../${name}.test.ts`, import.meta.url))

const files = new Map([["embedded", suiteFile("embedded")]])
const absent: string[] = []
for (const [title, kind] of [
  ["Kafka", "kafka"],
  ["NATS", "nats"],
  ["Iggy", "iggy"],
] as const) {
  const need = await serverNeed(kind)
  if (need === undefined) files.set(title, suiteFile(kind))
  else absent.push(`${title} (${need})`)
}

const results = await runSuites(files)
const notRun = absent.length === 0 ? "" : `\nNot run where this page was made: ${absent.join(", ")}.\n`
writeFileSync(
  page,
  `${manifestPart()}## Results

The suite that every driver must pass (\`checks/conformance\`), on real servers. A test that does not apply to a backend (n/a) says why in the run.

${resultsTable(results, [...manifests.keys()])}
${notRun}`,
)
const failed = [...results.values()]
  .flatMap((cells) => [...cells.values()])
  .reduce((sum, tally) => sum + tally.failed, 0)
console.log(`wrote ${page}; ${failed} failed`)
process.exitCode = failed === 0 ? 0 : 1
