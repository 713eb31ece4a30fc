import { numberIn } from "../workload/history.ts"
import type { Invariant } from "./invariant.ts"

/** A flush ends when all that was sent before it is confirmed or has failed. */
export const flushesWait: Invariant = {
  name: "a flush waits for what came before",
  *check({ program, occurrences }) {
    const failed = new Set<number>()
    for (const { error } of program.failures) for (const { payload } of error.unconfirmed) failed.add(numberIn(payload))
    const aside = new Set(program.aside)
    for (const { lane, before, endedMs, isCut } of program.flushes) {
      if (isCut) continue
      if (Number.isNaN(endedMs)) yield `a flush of ${lane.kind} ${lane.id} has not ended`
      for (const call of program.calls) {
        if (call.lane !== lane || call.id >= before || call.isResend || call.isCut) continue
        if (!(call.settledMs <= endedMs))
          yield `call ${call.id} settled at ${call.settledMs}, behind a flush that ended at ${endedMs}`
        if (call.promises !== "accepted" || call.state !== "done") continue
        for (const { number } of call.records) {
          const isStored = occurrences.of(number).some(({ storedMs }) => storedMs <= endedMs)
          if (!isStored && !failed.has(number) && !aside.has(number))
            yield `record #${number} was on its way when a flush behind it ended at ${endedMs}`
        }
      }
    }
  },
}
