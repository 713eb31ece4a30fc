import { numberIn } from "../workload/history.ts"
import type { Invariant } from "./invariant.ts"

/** A background failure of outcome `rejected` says that its records are not stored, and they are not. */
export const trueFailures: Invariant = {
  name: "true background failures",
  *check({ program, occurrences }) {
    const judged = new Set<number>()
    for (const { error, atMs, lane, mayReturn } of program.failures) {
      if (mayReturn) continue
      for (const { payload } of error.unconfirmed) {
        const number = numberIn(payload)
        // A second failure speaks of what the program sent again, under the same number.
        if (judged.has(number)) continue
        judged.add(number)
        if (error.outcome !== "rejected") continue
        const resend = program.records[number]?.resend
        const lie = occurrences.of(number).find(({ storedMs, history }) => {
          const isGone = history.endedMs !== undefined && history.endedMs <= atMs
          return !isGone && (resend === undefined || storedMs < resend.startedMs)
        })
        if (lie === undefined) continue
        yield `record #${number} of ${lane.kind} ${lane.id} was rejected (${error.message}) and is stored since ${lie.storedMs}`
      }
    }
  },
}
