import { type CallFact, numberIn } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"

/**
 * Nothing that was accepted is lost: each record is stored, or in one failure that reached the program, and never in more failures than
 * it was accepted for. What such a failure says was rejected is not stored.
 */
export const nothingLost: Invariant = {
  name: "nothing accepted is lost",
  *check(evidence) {
    const failed = failuresOf(evidence)
    const accepted = new Map<number, CallFact[]>()
    for (const call of evidence.program.calls) {
      if (call.promises !== "accepted" || call.state !== "done" || call.lane.isSpooled) continue
      for (const { number } of call.records) {
        const calls = accepted.get(number)
        if (calls === undefined) accepted.set(number, [call])
        else calls.push(call)
      }
    }
    for (const [number, calls] of accepted) {
      const failures = failed.get(number) ?? 0
      // A handle's failure is told apart from its call too, and comes before that of a resend.
      const most = calls.length + (evidence.program.records[number]?.call.hasHandle ? 1 : 0)
      if (failures > most)
        yield `record #${number} was accepted ${calls.length} times and reported as failed ${failures} times`
      if (failures < calls.length && evidence.occurrences.of(number).length === 0) {
        yield `record #${number} of call ${calls[0]?.id} was accepted, is stored nowhere, and ${failures} failures tell of it`
      }
    }
    for (const number of failed.keys()) {
      if (evidence.program.records[number]?.lane.isSpooled) continue
      const isToldTwice = evidence.program.records[number]?.call.hasHandle ?? false
      if (!accepted.has(number) && !isToldTwice) yield `a failure tells of record #${number}, which was never accepted`
    }
  },
}

function failuresOf({ program }: Evidence): Map<number, number> {
  const failed = new Map<number, number>()
  for (const { error } of program.failures) {
    for (const { payload } of error.unconfirmed) {
      const number = numberIn(payload)
      failed.set(number, (failed.get(number) ?? 0) + 1)
    }
  }
  return failed
}
