/** What a run came to, in words. */
import type { JobResult } from "./job.ts"
import { count } from "./progress.ts"

/** Differences of one run that are shown. */
const mostDifferences = 20

/** Prints one run's outcome: what was repeated, how the takeover went, the figures. */
export function printResult(result: JobResult, sessionTimeoutMs: number): void {
  printWork(result, sessionTimeoutMs)
  console.log(`\n${result.table.join("\n")}\n`)
  printDifferences(result)
}

/** Prints how the work went. */
export function printWork({ work }: JobResult, sessionTimeoutMs: number): void {
  if (work === undefined) return
  console.log(`${count(work.repeated)} flights were delivered more than once.`)
  if (work.takeover === undefined) return
  const { partitions, assignedMs, deliveredMs } = work.takeover
  console.log(
    `The other worker had partitions ${partitions.join(", ")} of the killed one ${after(assignedMs)}, and their first flight ${after(deliveredMs)}.`,
  )
  console.log(
    `Where the death of a worker is not seen at once, its session has to time out: the workers asked for ${count(sessionTimeoutMs)} ms (a Kafka broker decides by itself: group.consumer.session.timeout.ms).`,
  )
}

/** Prints whether the figures are right; some of those that are not. */
export function printDifferences({ differences, airports }: JobResult): void {
  if (differences.length === 0) {
    console.log(`All figures of all ${airports} airports are equal to those computed straight from the file.`)
    return
  }
  for (const line of differences.slice(0, mostDifferences)) console.error(line)
  console.error(`${differences.length} figures of ${airports} airports differ from those of the file.`)
}

function after(ms: number | undefined): string {
  return ms === undefined ? "never" : `after ${Math.round(ms)} ms`
}
