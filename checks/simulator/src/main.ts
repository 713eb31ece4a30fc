/** `npm run simulate`: the simulation over many seeds, over one with its trace, or over a core that was broken on purpose. */
import process from "node:process"
import { type Command, parseCommand, usage } from "./command-line.ts"
import { runMutants } from "./mutants/run-mutants.ts"
import { failureReport } from "./report.ts"
import { partsOf, runSeeds } from "./run.ts"

process.exitCode = await run(parseCommand(process.argv.slice(2)))

async function run(command: Command): Promise<number> {
  if (command.kind === "help") {
    console.log(usage)
    return 0
  }
  if (command.kind === "mutants") return (await runMutants(command, console.log)) ? 0 : 1
  if (command.kind === "seed") return await replay(command)
  const { seeds, calls, records, perSecond, failure } = await runSeeds(command, console.log)
  if (failure !== undefined) console.log(failure)
  const end = failure === undefined ? "every promise held" : "the last one failed"
  console.log(`${seeds} seeds, ${calls} calls, ${records} records, ${perSecond} seeds/s: ${end}`)
  return failure === undefined ? 0 : 1
}

async function replay({ seed, trace, only }: Command & { readonly kind: "seed" }): Promise<number> {
  let broken = 0
  for (const { part, simulate } of partsOf(only)) {
    const result = await simulate(seed, { trace: true })
    if (trace) for (const line of result.trace) console.log(line)
    const { violations, calls, records } = result
    if (violations.length > 0) console.log(failureReport(result, part))
    else console.log(`seed ${seed}, ${part}: ${calls} calls, ${records} records, every promise held`)
    broken += violations.length
  }
  return broken === 0 ? 0 : 1
}
