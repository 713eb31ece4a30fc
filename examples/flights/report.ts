/** What a run came to, in words. */
import type { JobResult, LedgerResult } from "./job.ts"
import { isOneToOne } from "./ledger.ts"
import { count } from "./progress.ts"
import { textTable } from "./text-table.ts"

/** Differences of one run that are shown. */
const mostDifferences = 20

/** Prints one run's outcome: what was repeated, how the takeover went, the figures. */
export function printResult(result: JobResult, sessionTimeoutMs: number): void {
  printWork(result, sessionTimeoutMs)
  console.log(`\n${result.table.join("\n")}\n`)
  printLedger(result)
  printDifferences(result)
}

const guaranteeColumns = ["", "flights", "delivered again", "records", "missing", "twice", "figures"]

/** Prints both ways side by side: what was delivered more than once, and what came of it. */
function printLedger({ ledger, work, differences }: JobResult): void {
  if (typeof ledger === "string") return
  const { flights, entries, missing, twice } = ledger.balance
  const again = (repeated: number | undefined): string => (repeated === undefined ? "-" : count(repeated))
  const figures = (differing: readonly string[]): string =>
    differing.length === 0 ? "equal" : `${count(differing.length)} differ`
  const rows = [
    ["at least once", count(flights), again(work?.repeated), "snapshots", "-", "-", figures(differences)],
    [
      "exactly once",
      count(flights),
      again(work?.handledAgain),
      count(entries),
      count(missing),
      count(twice),
      figures(ledger.differences),
    ],
  ]
  console.log(`${textTable(guaranteeColumns, rows).join("\n")}\n`)
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

/** Prints whether the figures are right, and flights and entries one to one; some of what is not. */
export function printDifferences({ differences, airports, ledger }: JobResult): void {
  printFigures(differences, airports)
  if (typeof ledger !== "string") printBalance(ledger, airports)
}

function printBalance({ balance, differences }: LedgerResult, airports: number): void {
  if (isOneToOne(balance)) console.log("Each flight has exactly one entry in the ledger, and each entry one flight.")
  else console.error("Flights and entries of the ledger are not one to one.")
  if (differences.length === 0) return
  console.error("From the entries:")
  printFigures(differences, airports)
}

function printFigures(differences: readonly string[], airports: number): void {
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
