import type { ReadingCheck } from "../facts.ts"

/** The largest batch that a simulation appends. */
const largestBatch = 40

/** What is read ahead of a program, however slow it is, stays below one and a half budgets and a batch a partition. */
export const readAheadBound: ReadingCheck = {
  name: "read-ahead is bounded",
  polled({ program, limits }) {
    const { prefetchRecords } = program.owner.options
    // What handlers have taken is theirs.
    if (prefetchRecords === undefined || program.running !== undefined) return undefined
    let ahead = 0
    for (const { expected, readTo, jumps, isWilful, isOwned } of program.lanes.values()) {
      // Behind a step what lies between the two says nothing.
      if (expected !== undefined && jumps.length === 0 && !isWilful && isOwned) ahead += Math.max(0, readTo - expected)
    }
    const most = 1.5 * prefetchRecords + largestBatch * program.lanes.size
    if (ahead + limits.maxRecords <= most) return undefined
    return `program ${program.id} holds ${ahead} records, and asks for ${limits.maxRecords} more; ${prefetchRecords} may be ahead`
  },
}
