import { TimeoutError } from "@millrace/contract"
import { placeOf } from "./failure-handling.ts"
import { placeText } from "./handler-failure.ts"
import type { LaneBacklog } from "./run-schedule.ts"

/** Positions that an error names. */
const shownPositions = 5

/**
 * Says how many handlers have not finished in time, and at which messages; and of which partitions a batch that cannot be read was being dealt
 * with. None of these counts as handled.
 */
export function unfinished(what: string, backlogs: Iterable<LaneBacklog>, timeoutMs: number): TimeoutError {
  const places: string[] = []
  let running = 0
  for (const { oldest, lane, passing } of backlogs) {
    if (passing !== undefined) {
      running++
      if (places.length < shownPositions) places.push(placeText({ ...lane.partition, offset: undefined }))
    }
    for (let task = oldest; task !== undefined; task = task.younger) {
      running++
      if (places.length < shownPositions) places.push(placeText(placeOf(task)))
    }
  }
  const more = running > places.length ? ` and ${running - places.length} more` : ""
  const handlers = running === 1 ? "1 handler had" : `${running} handlers had`
  return new TimeoutError(`${what}: ${handlers} not finished after ${timeoutMs} ms: ${places.join("; ")}${more}`, {
    outcome: "rejected",
    context: { running },
  })
}
