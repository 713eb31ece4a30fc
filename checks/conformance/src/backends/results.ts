/** What became of the conformance tests, chapter by chapter and backend by backend. */
import { run } from "node:test"
import { table } from "./manifest-table.ts"

/** The tests of one chapter on one backend. */
export interface Tally {
  passed: number
  failed: number
  skipped: number
}

/** By chapter, then by backend. */
export type Results = Map<string, Map<string, Tally>>

interface Event {
  readonly name: string
  readonly nesting: number
  readonly skip?: string | boolean
  readonly details?: { readonly type?: string }
}

/** Runs test files, and counts the first suite of each: that of the backend on its disk or its server. @param files By backend. */
export async function runSuites(files: ReadonlyMap<string, string>): Promise<Results> {
  const results: Results = new Map()
  for (const [backend, file] of files) {
    const suites: string[] = []
    let counted: string | undefined
    for await (const { type, data } of run({ files: [file], concurrency: 1 })) {
      const event = data as Event
      // Starts come outermost first: what is open now tells the chapter of a test.
      if (type === "test:start") suites.splice(event.nesting, suites.length, event.name)
      if (type !== "test:pass" && type !== "test:fail") continue
      if (event.details?.type === "suite") continue
      const [suite, chapter] = suites
      counted ??= suite
      if (suite !== counted || chapter === undefined || event.nesting < 2) continue
      count(results, { chapter, backend }, type === "test:fail" ? "failed" : event.skip ? "skipped" : "passed")
    }
  }
  return results
}

/** Rows are chapters; a cell says how many tests passed, and what did not. */
export function resultsTable(results: Results, backends: readonly string[]): string {
  const body = [...results].map(([chapter, cells]) => [
    chapter,
    ...backends.map((backend) => shown(cells.get(backend))),
  ])
  return table(["", ...backends], body)
}

function shown(tally: Tally | undefined): string {
  if (tally === undefined) return "not run"
  const parts = [`${tally.passed} passed`]
  if (tally.skipped > 0) parts.push(`${tally.skipped} n/a`)
  if (tally.failed > 0) parts.push(`**${tally.failed} failed**`)
  return parts.join(", ")
}

function count(
  results: Results,
  { chapter, backend }: { readonly chapter: string; readonly backend: string },
  kind: keyof Tally,
): void {
  let cells = results.get(chapter)
  if (cells === undefined) {
    cells = new Map()
    results.set(chapter, cells)
  }
  let tally = cells.get(backend)
  if (tally === undefined) {
    tally = { passed: 0, failed: 0, skipped: 0 }
    cells.set(backend, tally)
  }
  tally[kind]++
}
