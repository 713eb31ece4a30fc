import type { Part } from "./command-line.ts"
import type { SimulationResult } from "./simulation.ts"

/** How many of the last events a failure shows. */
const lastEvents = 40

/** What a failed seed has to tell: the promises that broke, how it came to that, and how to see it again. */
export function failureReport({ seed, violations, trace }: SimulationResult, part: Part): string {
  const broken = violations.slice(0, 5).map(({ invariant, text }) => `  ${invariant}: ${text}`)
  const more = violations.length > 5 ? [`  and ${violations.length - 5} more`] : []
  const events = trace.filter((line) => !line.includes("VIOLATION")).slice(-lastEvents)
  return [
    `seed ${seed} of the ${part} breaks ${violations.length === 1 ? "a promise" : `${violations.length} promises`}:`,
    ...broken,
    ...more,
    `the last ${events.length} of ${trace.length} events:`,
    ...events,
    `again: npm run simulate -- --only ${part} --seed ${seed} --trace`,
  ].join("\n")
}
