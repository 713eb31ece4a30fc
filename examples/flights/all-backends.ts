/** The job on every backend that this machine has, one after the other, and the four side by side. */
import type { ServerKind } from "@millrace/servers"
import { serverNeed, sharedServer } from "@millrace/servers"
import type { JobOptions, JobResult } from "./job.ts"
import { isRight as isJobRight, runJob } from "./job.ts"
import { isOneToOne } from "./ledger.ts"
import type { Place } from "./place.ts"
import { backendPlace, temporaryPlace } from "./place.ts"
import { count } from "./progress.ts"
import { printDifferences, printWork } from "./report.ts"
import { textTable } from "./text-table.ts"

/** What became of one backend. */
type Outcome = { readonly name: string } & (
  | { readonly kind: "ran"; readonly result: JobResult }
  | { readonly kind: "skipped"; readonly reason: string }
  | { readonly kind: "failed"; readonly error: unknown }
)

const servers: readonly ServerKind[] = ["kafka", "nats", "iggy"]

/** Runs it everywhere. Answers whether all that ran came out right; a server that should run and does not counts as wrong. */
export async function runEverywhere(options: Omit<JobOptions, "place">): Promise<boolean> {
  const outcomes = [await attempt("embedded", temporaryPlace, options)]
  let table: readonly string[] = []
  for (const kind of servers) {
    const reason = await serverNeed(kind)
    if (reason === undefined) outcomes.push(await attempt(kind, () => serverPlace(kind), options))
    else outcomes.push({ name: kind, kind: "skipped", reason })
  }
  for (const outcome of outcomes) if (outcome.kind === "ran") table = outcome.result.table
  console.log(`\n${table.join("\n")}\n`)
  console.log(`${comparison(outcomes).join("\n")}\n`)
  for (const outcome of outcomes) {
    if (outcome.kind === "ran" && typeof outcome.result.ledger === "string") console.log(outcome.result.ledger)
    if (outcome.kind === "skipped") console.log(`${outcome.name} was skipped: ${outcome.reason}`)
  }
  const right = outcomes.every(isRight)
  const ran = outcomes.filter(({ kind }) => kind === "ran").length
  console.log(right ? `All ${ran} that ran came to the same figures as the file.` : "Not all came out right.")
  return right
}

/** A server of this machine: one that the environment names, or one that is started here and ends with this process. */
async function serverPlace(kind: ServerKind): Promise<Place> {
  const { url } = await sharedServer(kind)
  return backendPlace(url, undefined)
}

async function attempt(name: string, open: () => Promise<Place>, options: Omit<JobOptions, "place">): Promise<Outcome> {
  options.signal.throwIfAborted()
  console.log(`\n=== ${name}`)
  try {
    const place = await open()
    try {
      const result = await runJob({ ...options, place })
      printWork(result, options.sessionTimeoutMs)
      printDifferences(result)
      return { name, kind: "ran", result }
    } finally {
      await place.leave()
    }
  } catch (error) {
    if (options.signal.aborted) throw error
    console.error(error)
    return { name, kind: "failed", error }
  }
}

function isRight(outcome: Outcome): boolean {
  return outcome.kind === "skipped" || (outcome.kind === "ran" && isJobRight(outcome.result))
}

const columns = [
  "backend",
  "published",
  "whole work",
  "delivered twice",
  "taken over",
  "first flight",
  "figures",
  "one to one",
]

function comparison(outcomes: readonly Outcome[]): string[] {
  return textTable(columns, outcomes.map(row))
}

function row(outcome: Outcome): string[] {
  if (outcome.kind !== "ran") return [outcome.name, "-", "-", "-", "-", "-", outcome.kind, "-"]
  const { backend, work, differences, ledger } = outcome.result
  const figures = differences.length === 0 ? "equal" : `${differences.length} differ`
  return [
    backend,
    work === undefined ? "-" : `${count(Math.round(work.publishedPerSecond))}/s`,
    work === undefined ? "-" : `${(work.tookMs / 1_000).toFixed(1)} s`,
    work === undefined ? "-" : count(work.repeated),
    milliseconds(work?.takeover?.assignedMs),
    milliseconds(work?.takeover?.deliveredMs),
    figures,
    typeof ledger === "string" ? "-" : isOneToOne(ledger.balance) ? "yes" : "no",
  ]
}

function milliseconds(ms: number | undefined): string {
  return ms === undefined ? "-" : `${count(Math.round(ms))} ms`
}
