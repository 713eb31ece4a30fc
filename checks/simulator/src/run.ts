import { performance } from "node:perf_hooks"
import { failureReport } from "./report.ts"
import { simulate } from "./simulation.ts"

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

/** Runs seeds one after the other until one fails. @param told Hears now and then how far it is. */
export async function runSeeds(from: number, count: number, told: (text: string) => void): Promise<RunSummary> {
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
    const result = await simulate(seed)
    seeds++
    calls += result.calls
    records += result.records
    // The same seed again, which costs nothing as long as all is well.
    if (result.violations.length > 0) Error.stackTraceLimit = stackTraceLimit
    if (result.violations.length > 0) failure = failureReport(await simulate(seed, { trace: true }))
    if (seeds % seedsBetweenReports === 0) told(`${seeds} seeds, ${records} records, ${perSecond()} seeds/s`)
  }
  Error.stackTraceLimit = stackTraceLimit
  return { seeds, calls, records, perSecond: perSecond(), failure }
}
