import type { ReadingCheck } from "../facts.ts"
import type { LaneView } from "../lane-view.ts"

/**
 * While a program has a partition it gets its records one after the other, none left out and none twice, but for holes and where the
 * position was said to have jumped.
 */
export const orderPerOwner: ReadingCheck = {
  name: "records come one after the other",
  handedOut({ program, lane, offset, history }) {
    const { expected } = lane
    // Handlers in order of keys begin with what is free; who comes when is watched there.
    if (program.running === "key") return undefined
    if (expected === undefined || (lane.lineage !== undefined && lane.lineage !== history.lineage)) return undefined
    if (follows(lane, expected, offset, history.log.hidden)) return undefined
    const { topic, partition } = lane.place
    return `program ${program.id} gets ${topic}/${partition}@${offset}, where ${expected} comes next`
  },
}

/** Whether a record can be the next one behind a position. @param hidden Offsets that nobody needs to get. */
export function follows(lane: LaneView, position: number, offset: number, hidden: ReadonlySet<number>): boolean {
  const seen = new Set<number>()
  for (let at = position; at !== offset; ) {
    if (seen.has(at)) return false
    seen.add(at)
    // A record that lies in a hole by now may have been read before.
    const jump = lane.jumps.find(({ from, to }) => at === from || (from < at && at < to))
    if (jump !== undefined && !seen.has(jump.to)) at = jump.to
    else if (hidden.has(at)) at++
    else return false
  }
  return true
}
