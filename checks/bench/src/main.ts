/** `npm run bench -- embedded|producer|kafka|nats|iggy [--only id[,id]] [--json FILE] [--markdown] [--quick]` */
import { writeFileSync } from "node:fs"
import { availableParallelism, cpus, loadavg } from "node:os"
import { fileURLToPath } from "node:url"
import { type Command, parseCommand } from "./command-line.ts"
import { formatTables } from "./markdown.ts"
import { formatReport } from "./report.ts"
import type { Row } from "./row.ts"
import { openScratch } from "./scratch.ts"
import { type Suite, suites } from "./suites.ts"

/** Fresh directories are made here: in the repository, since the system's directory for temporary files often lies in memory. */
const parent = fileURLToPath(new URL("../../../.data/", import.meta.url))

const signals = ["SIGINT", "SIGTERM"] as const

try {
  const command = parseCommand(
    process.argv.slice(2),
    Object.fromEntries(Object.entries(suites).map(([name, { ids }]) => [name, ids])),
  )
  await runSuite(command)
} catch (error) {
  console.error(error instanceof Error && error.stack !== undefined ? error.stack : error)
  process.exitCode = 1
}

async function runSuite(command: Command): Promise<void> {
  const scratch = openScratch(parent)
  const suite = await (suites[command.suite] as Suite).open()
  const chosen = suite.benchmarks.filter((benchmark) => command.only?.includes(benchmark.id) ?? true)
  const interrupted = (): void => {
    scratch.remove()
    process.exit(130)
  }
  for (const signal of signals) process.once(signal, interrupted)
  const rows: Row[] = []
  try {
    console.log(machine(`${scratch.root}${suite.about}`, command.quick))
    for (const benchmark of chosen) {
      process.stderr.write(`${benchmark.id} …\n`)
      rows.push(await benchmark.run({ scratch, quick: command.quick }))
    }
  } finally {
    for (const signal of signals) process.off(signal, interrupted)
    await suite.close()
    scratch.remove()
  }
  console.log(formatReport(rows))
  if (command.markdown) console.log(`\n${formatTables(rows)}`)
  if (command.json !== undefined) writeFileSync(command.json, `${JSON.stringify(rows, undefined, 2)}\n`)
}

/** Where and on what the figures were made; a load above 0 at the start makes them doubtful. */
function machine(root: string, quick: boolean): string {
  const model = cpus()[0]?.model ?? "unknown CPU"
  const load = loadavg()[0]?.toFixed(2)
  const mode = quick ? "\nquick: a smoke test, the figures mean nothing" : ""
  return `Node ${process.versions.node}, ${availableParallelism()} × ${model}, load ${load} at the start, writing to ${root}${mode}\n`
}
