import { connect } from "millrace"
import { DelayTable } from "./delays.ts"
import type { Flight } from "./flights.ts"
import { readFlights } from "./flights.ts"
import { count } from "./progress.ts"
import { unpublished } from "./publish.ts"
import { resultTable } from "./result-table.ts"
import type { Snapshot } from "./snapshot.ts"
import { newestSnapshots } from "./snapshot.ts"
import { flightsTopic, partitions, resultsTopic } from "./topics.ts"
import { Work } from "./work.ts"

/** What the job is run with. */
export interface JobOptions {
  /** The directory of the log. */
  readonly directory: string
  /** Flights published a second, so that there is something to watch. */
  readonly perSecond: number
  /** How long the work may take before it counts as failed. */
  readonly limitMs: number
}

/** Runs the job; answers whether every figure is that of the file. */
export async function runJob({ directory, perSecond, limitMs }: JobOptions): Promise<boolean> {
  const url = `file:${directory.split("/").map(encodeURIComponent).join("/")}`
  const flights = await readFlights()
  await using client = await connect(url)
  await flightsTopic(client).ensure(partitions)
  await resultsTopic(client).ensure(partitions)
  const left = await unpublished(flightsTopic(client), flights)
  const before = await newestSnapshots(resultsTopic(client))
  if (left.length === 0 && handledIn(before) === flights.length) {
    console.log(
      `Everything in ${directory} is done already: ${count(flights.length)} flights are published and counted.`,
    )
  } else {
    console.log(describeStart(directory, flights.length - left.length, handledIn(before)))
    const { repeated, takeover } = await new Work(url, { flights, left, before }).run(flightsTopic(client), {
      perSecond,
      limitMs,
    })
    console.log(`${count(repeated)} flights were delivered more than once.`)
    if (takeover !== undefined) console.log(takeover)
  }
  return compare(await newestSnapshots(resultsTopic(client)), flights)
}

function handledIn(snapshots: ReadonlyMap<number, Snapshot>): number {
  return [...snapshots.values()].reduce((sum, { upTo }) => sum + Number(upTo) + 1, 0)
}

function compare(snapshots: ReadonlyMap<number, Snapshot>, flights: readonly Flight[]): boolean {
  const counted = new DelayTable()
  for (const { table } of snapshots.values()) counted.addAll(table)
  const expected = new DelayTable()
  for (const { origin, delay } of flights) expected.add(origin, delay)
  console.log(`\n${resultTable(counted, 10).join("\n")}\n`)
  const differences = counted.differences(expected)
  const airports = expected.entries().length
  if (differences.length === 0) {
    console.log(`All figures of all ${airports} airports are equal to those computed straight from the file.`)
    return true
  }
  for (const line of differences.slice(0, 20)) console.error(line)
  console.error(`${differences.length} figures of ${airports} airports differ from those of the file.`)
  return false
}

function describeStart(directory: string, published: number, handled: number): string {
  if (published === 0) return `The log is in ${directory}.`
  return `Going on in ${directory}, where ${count(published)} flights are published and ${count(handled)} are counted.`
}
