import { performance } from "node:perf_hooks"
import type { Part } from "./command-line.ts"
import { simulateQueues } from "./queues/queue-simulation.ts"
import { simulateReading } from "./reading/reading-simulation.ts"
import { failureReport } from "./report.ts"
import { simulateSchemas } from "./schemas/schema-simulation.ts"
import { type SimulationOptions, type SimulationResult, simulate } from "./simulation.ts"
import { simulateTransactions } from "./transactions/transaction-simulation.ts"

/** What a run over many seeds came to. */
export interface RunSummary {
  readonly seeds: number
  readonly calls: number
  readonly records: number
  readonly perSecond: number
  /** The report of the first seed that failed. */
  readonly failure: string | undefined
}

/** Every how many seeds a long run says how far it is. */
const seedsBetweenReports = 1000

/** What a seed is run by. */
interface PartRun {
  readonly part: Part
  readonly simulate: (seed: number, options?: SimulationOptions) => Promise<SimulationResult>
}

/** What a seed decides, one after the other. @param only Only this one. */
export function partsOf(only: Part | undefined): readonly PartRun[] {
  const all: readonly PartRun[] = [
    { part: "producers", simulate },
    { part: "consumers", simulate: simulateReading },
    { part: "queues", simulate: simulateQueues },
    { part: "transactions", simulate: simulateTransactions },
    { part: "schemas", simulate: simulateSchemas },
  ]
  return all.filter(({ part }) => only === undefined || part === only)
}

/** Runs seeds one after the other until one fails. @param told Hears now and then how far it is. */
export async function runSeeds(
  { from, count, only }: { readonly from: number; readonly count: number; readonly only: Part | undefined },
  told: (text: string) => void,
): Promise<RunSummary> {
  const startedMs = performance.now()
  let seeds = 0
  let calls = 0
  let records = 0
  let failure: string | undefined
  const perSecond = (): number => Math.round((seeds / Math.max(1, performance.now() - startedMs)) * 1000)
  // Thousands of simulated failures a second: nobody looks at where they were made.
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  for (let seed = from; seed < from + count && failure === undefined; seed++) {
    for (const { part, simulate: run } of partsOf(only)) {
      const result = await run(seed)
      calls += result.calls
      records += result.records
      if (result.violations.length === 0) continue
      // The same seed again, which costs nothing as long as all is well.
      Error.stackTraceLimit = stackTraceLimit
      failure ??= failureReport(await run(seed, { trace: true }), part)
    }
    seeds++
    if (seeds % seedsBetweenReports === 0) told(`${seeds} seeds, ${records} records, ${perSecond()} seeds/s`)
  }
  Error.stackTraceLimit = stackTraceLimit
  return { seeds, calls, records, perSecond: perSecond(), failure }
}
