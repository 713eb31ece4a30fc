import type { RecordFact } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"
import type { Occurrence } from "./occurrences.ts"
import { placeOf } from "./order.ts"

/**
 * A record lies once in a history where the manifest says that resends are recognised. A backend that forgot its producers may take
 * one twice that had not been confirmed before; what was confirmed is never stored again.
 */
export const noDuplicates: Invariant = {
  name: "no duplicates",
  *check(evidence) {
    for (const record of evidence.program.records) {
      const places = evidence.occurrences.of(record.number)
      for (let i = 1; i < places.length; i++) {
        const first = places.slice(0, i).find((earlier) => isSameHistory(earlier, places[i] as Occurrence))
        if (first === undefined) continue
        const breach = judge(record, { first, again: places[i] as Occurrence }, evidence)
        if (breach !== undefined) yield breach
      }
    }
  },
}

function isSameHistory(a: Occurrence, b: Occurrence): boolean {
  return a.history.topic === b.history.topic && a.history.lineage === b.history.lineage
}

function judge(
  { number, call, lane, resend }: RecordFact,
  { first, again }: { readonly first: Occurrence; readonly again: Occurrence },
  { manifest }: Evidence,
): string | undefined {
  const where = `at offsets ${first.offset} and ${again.offset} of ${placeOf(again.history)}`
  const { dedup, idLookup, windowMs = Number.POSITIVE_INFINITY } = manifest.append
  if (lane.failsUnknown && dedup === "none" && resend === undefined)
    return `record #${number} lies twice, ${where}, although what may be stored was not to be sent again`
  if (dedup === "none" || (dedup === "sequence" && !lane.isIdempotent)) return undefined
  const forgot = first.history.log.forgottenAt.some((at) => at > first.offset && at <= again.offset)
  if (
    // A backend that forgot takes for new what was on its way before, and what a killed process does not know to be confirmed.
    !forgot &&
    !(lane.isSpooled && dedup === "idWindow") &&
    call.state === "done" &&
    call.promises === "confirmed" &&
    call.settledMs < again.storedMs &&
    resend === undefined
  ) {
    return `record #${number} was confirmed at ${call.settledMs} and stored again at ${again.storedMs} ${where}`
  }
  if (resend !== undefined && resend.startedMs <= again.storedMs) {
    const isRecognised =
      resend.keepsIds && idLookup !== "none" && again.storedMs - first.storedMs <= Math.min(windowMs, 120_000)
    if (!isRecognised) return undefined
  }
  // What a spool sends again unrecognised it counts: "doubled is counted" looks at that.
  if (lane.isSpooled) return undefined
  if (dedup === "sequence" && forgot) return undefined
  return `record #${number} lies twice, ${where}`
}
