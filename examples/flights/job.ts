import type { Client, Topic } from "millrace"
import { connect } from "millrace"
import { DelayTable } from "./delays.ts"
import type { Flight } from "./flights.ts"
import { readFlights } from "./flights.ts"
import type { Balance } from "./ledger.ts"
import { isOneToOne, LedgerReader } from "./ledger.ts"
import type { Place } from "./place.ts"
import { count } from "./progress.ts"
import { flightsFeed, unpublished } from "./publish.ts"
import { resultTable } from "./result-table.ts"
import type { Snapshot } from "./snapshot.ts"
import { newestSnapshots } from "./snapshot.ts"
import type { TakeoverTimes } from "./takeover.ts"
import { deleteAll, flightsTopic, ledgerTopic, partitions, resultsTopic } from "./topics.ts"
import { Work } from "./work.ts"

/** What the job is run with. */
export interface JobOptions {
  readonly place: Place
  /** Flights published a second, so that there is something to watch. */
  readonly perSecond: number
  /** What the workers ask of their group: one that shows no life for so long is taken for dead. */
  readonly sessionTimeoutMs: number
  /** How long the work may take before it counts as failed. */
  readonly limitMs: number
  /** Stops the job. */
  readonly signal: AbortSignal
}

/** How the job went. */
export interface JobResult {
  /** The backend in words. */
  readonly backend: string
  /** The figures, for show. */
  readonly table: readonly string[]
  /** Figures that are not those of the file, in words. */
  readonly differences: readonly string[]
  readonly airports: number
  /** What came of the flights that were to be entered exactly once; in words, why nothing did, where the backend has no transactions. */
  readonly ledger: LedgerResult | string
  /** How the work went; absent when everything was done already. */
  readonly work?: {
    readonly publishedPerSecond: number
    readonly tookMs: number
    /** How many flights were delivered more than once. */
    readonly repeated: number
    /** The same of the processors: what a transaction had in it that was never committed. Absent where there were none. */
    readonly handledAgain?: number
    /** Absent when it never came to the kill. */
    readonly takeover?: TakeoverTimes
  }
}

/** Flights and entries side by side. */
export interface LedgerResult {
  readonly balance: Balance
  /** Figures from the entries that are not those of the file, in words. */
  readonly differences: readonly string[]
}

/** Runs the job, and compares what came out with what the file says. */
export async function runJob(options: JobOptions): Promise<JobResult> {
  const { url, stream, deletesStream } = options.place
  await using client = await connect(url, { signal: options.signal })
  try {
    return await countFlights(client, options)
  } finally {
    if (deletesStream) await tidy(client, stream)
  }
}

async function countFlights(client: Client, options: JobOptions): Promise<JobResult> {
  const { stream, name } = options.place
  const flights = await readFlights()
  const topic = flightsTopic(client, stream)
  const results = resultsTopic(client, stream)
  await topic.ensure(partitions)
  await results.ensure(partitions)
  const absence = noTransactions(client)
  await using ledger = absence === undefined ? await openLedger(client, stream) : undefined
  await using feed = flightsFeed(topic, options.place.spool)
  // What an earlier run accepted and did not get out goes first; only then is it clear what is missing.
  await feed.flush()
  const left = await unpublished(topic, flights)
  const before = await newestSnapshots(results)
  const whole = flights.length
  let work: JobResult["work"]
  if (left.length === 0 && handledIn(before) === whole && (ledger?.flights ?? whole) === whole) {
    console.log(`Everything in ${name} is done already: ${count(whole)} flights are published and counted.`)
  } else {
    console.log(describeStart(name, whole - left.length, handledIn(before)))
    if (absence !== undefined) console.log(absence)
    work = await new Work({ flights, left, before, ledger }, options).run(feed)
  }
  const expected = delaysOf(flights)
  return {
    backend: client.manifest.backend,
    ...compare(await newestSnapshots(results), expected),
    ledger: ledger === undefined ? (absence ?? "") : await compareLedger(ledger, topic, expected),
    ...(work === undefined ? {} : { work }),
  }
}

/** Why there can be no processors on this backend; `undefined` where there can. */
function noTransactions(client: Client): string | undefined {
  const { backend, transactions } = client.manifest
  const lacking = transactions.supported ? transactions.offsets : transactions
  return lacking.supported ? undefined : `Exactly once is left out on ${backend}: ${lacking.reason}.`
}

async function openLedger(client: Client, stream: string): Promise<LedgerReader> {
  const topic = ledgerTopic(client, stream)
  await topic.ensure(partitions)
  const ledger = await LedgerReader.open(topic)
  await ledger.catchUp()
  return ledger
}

/** Whether all came out as the file says, and flights and entries are one to one. */
export function isRight({ differences, ledger }: JobResult): boolean {
  if (differences.length > 0) return false
  return typeof ledger === "string" || (ledger.differences.length === 0 && isOneToOne(ledger.balance))
}

/** That something stays behind is said, and does not hide how the job went. */
async function tidy(client: Client, stream: string): Promise<void> {
  try {
    await deleteAll(client, stream)
  } catch (error) {
    console.error(`stream ${stream} could not be deleted:`, error)
  }
}

function handledIn(snapshots: ReadonlyMap<number, Snapshot>): number {
  return [...snapshots.values()].reduce((sum, { upTo }) => sum + Number(upTo) + 1, 0)
}

function compare(
  snapshots: ReadonlyMap<number, Snapshot>,
  expected: DelayTable,
): Pick<JobResult, "table" | "differences" | "airports"> {
  const counted = new DelayTable()
  for (const { table } of snapshots.values()) counted.addAll(table)
  return {
    table: resultTable(counted, 10),
    differences: counted.differences(expected),
    airports: expected.entries().length,
  }
}

async function compareLedger(ledger: LedgerReader, flights: Topic, expected: DelayTable): Promise<LedgerResult> {
  await ledger.catchUp()
  const balance = await ledger.balance(flights)
  return { balance, differences: balance.table.differences(expected) }
}

function delaysOf(flights: readonly Flight[]): DelayTable {
  const table = new DelayTable()
  for (const { origin, delay } of flights) table.add(origin, delay)
  return table
}

function describeStart(name: string, published: number, handled: number): string {
  if (published === 0) return `The log is in ${name}.`
  return `Going on in ${name}, where ${count(published)} flights are published and ${count(handled)} are counted.`
}
