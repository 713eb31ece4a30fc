import type { ReadingCheck } from "../facts.ts"

/** A program gets nothing of a partition that it was not given, that is about to go or gone, or that it has paused. */
export const onlyOwned: ReadingCheck = {
  name: "only what is owned is handed out",
  handedOut({ program, lane, offset }) {
    const what = `program ${program.id} gets ${lane.place.topic}/${lane.place.partition}@${offset}, which`
    if (!lane.isOwned) return `${what} it was not given`
    if (lane.isLeaving) return `${what} is about to go to another member`
    if (lane.isPaused) return `${what} is paused`
    return undefined
  },
}
