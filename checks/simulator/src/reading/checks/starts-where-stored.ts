import type { HandOut, ReadingCheck } from "../facts.ts"
import { placeKey } from "../program.ts"
import { follows } from "./order-per-owner.ts"

/** A partition is read on from its stored progress, and without one from where `startAt` says; one that a member gains later, from the first record. */
export const startsWhereStored: ReadingCheck = {
  name: "reading starts where progress is stored",
  handedOut(fact) {
    const { program, lane, offset, history } = fact
    if (lane.expected !== undefined || lane.isWilful) return undefined
    const start = startOf(fact)
    if (start === undefined || follows(lane, start, offset, history.log.hidden)) return undefined
    const asked = program.asked.get(placeKey(lane.place))
    if (asked !== undefined && follows(lane, asked, offset, history.log.hidden)) return undefined
    const { topic, partition } = lane.place
    return `program ${program.id} gets ${topic}/${partition}@${offset} first, where ${start} is its start`
  },
}

function startOf({ program, lane, history }: HandOut): number | undefined {
  const { startAt = { kind: "next" } } = program.owner.options
  const key = placeKey(lane.place)
  const stored = program.loads.get(key)
  if (stored !== undefined && !program.replays(lane)) return stored
  // What was lost and given again before the program could listen is looked up as what is gained later.
  if (lane.isGainedLater || startAt.kind !== "offset" || program.anchors.has(key)) {
    const anchor = program.anchors.get(key)
    if (anchor === undefined || lane.isGainedLater || startAt.kind !== "timestampMicros") return anchor
    const { records } = history.log
    // The anchor names a batch; what was appended before the time is left out.
    const { value } = startAt
    const { base = anchor, records: batch = [] } = history.log.batches.find((one) => one.base === anchor) ?? {}
    const first = batch.findIndex(({ timestampMicros }) => timestampMicros >= value)
    return anchor >= records.length || first === -1 ? anchor : base + first
  }
  return Number(startAt.value)
}
