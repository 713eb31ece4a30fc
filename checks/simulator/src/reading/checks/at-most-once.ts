import type { ReadingCheck } from "../facts.ts"

/** Under `onRead` no record is handed out twice, unless the program goes back of its own will. */
export const atMostOnce: ReadingCheck = {
  name: "on read nothing comes twice",
  handedOut({ program, lane, offset, ledger }) {
    if (program.owner.semantics !== "onRead" || lane.isWilful || !ledger.isHandled(offset)) return undefined
    return `program ${program.id} gets ${lane.place.topic}/${lane.place.partition}@${offset}, which was handed out before`
  },
}
