import type { History } from "../backend/sim-topic.ts"
import { numberIn, type RecordFact } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"

/**
 * The records of one producer have, in each partition, the order of the calls: where a record lies twice its first place counts. What was
 * on its way when its topic was replaced comes from several partitions of the old one: of that, and of nothing else, only records with
 * the same key or partition are compared. Records that the program itself sent again are left out.
 */
export const order: Invariant = {
  name: "order within a partition",
  *check(evidence) {
    for (const history of evidence.histories) yield* checkHistory(history, evidence)
  },
}

/** How far one lane has come. */
interface Reached {
  /** When its first record was stored: what was sent before may have been on its way to an older history. */
  readonly firstMs: number
  /** The highest number of records that were sent later. */
  own: number
  /** Of all others: by their routes, and at all. */
  readonly moved: Map<string, number>
  highest: number
}

function* checkHistory(history: History, { program, histories }: Evidence): Iterable<string> {
  const replaces = histories.some(
    ({ topic, endedMs }) => topic === history.topic && (endedMs ?? Infinity) <= history.beganMs,
  )
  const seen = new Set<number>()
  const lanes = new Map<number, Reached>()
  for (const [offset, { payload }] of history.log.records.entries()) {
    const number = numberIn(payload)
    const record = program.records[number]
    if (record === undefined) {
      yield `offset ${offset} of ${placeOf(history)} has record #${number}, which nobody sent`
      continue
    }
    if (seen.has(number)) continue
    seen.add(number)
    if (record.resend !== undefined || !record.lane.isOrdered) continue
    if (record.lane.isOrderedByKey && (record.route === "" || record.isRefused)) continue
    let reached = lanes.get(record.lane.id)
    if (reached === undefined) {
      reached = { firstMs: storedMsOf(offset, history), own: -1, moved: new Map(), highest: -1 }
      lanes.set(record.lane.id, reached)
    }
    const before = take(reached, record, replaces)
    if (before === undefined) continue
    yield `record #${number} of ${record.lane.kind} ${record.lane.id} lies behind #${before} at offset ${offset} of ${placeOf(history)}`
  }
}

/** The record that this one ought to lie before. */
function take(reached: Reached, { number, route, call, lane }: RecordFact, replaces: boolean): number | undefined {
  const isMoved = lane.isOrderedByKey || (replaces && call.startedMs <= reached.firstMs)
  const same = route === "" ? -1 : (reached.moved.get(route) ?? -1)
  const before = isMoved ? Math.max(reached.own, same) : reached.highest
  if (isMoved) reached.moved.set(route, Math.max(number, reached.moved.get(route) ?? -1))
  else reached.own = Math.max(number, reached.own)
  reached.highest = Math.max(number, reached.highest)
  return number < before ? before : undefined
}

function storedMsOf(offset: number, { log }: History): number {
  const batch = log.batches.findLast(({ base }) => base <= offset)
  return batch?.storedMs ?? 0
}

/** A history in words. */
export function placeOf({ topic, partition, lineage }: History): string {
  return `${topic}/${partition} (history ${lineage})`
}
