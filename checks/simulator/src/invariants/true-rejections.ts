import { PublishFailedError } from "@millrace/core"
import { type CallFact, numberIn } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"

/** An error of outcome `rejected` says that its records are not stored, and they are not. */
export const trueRejections: Invariant = {
  name: "true rejections",
  *check(evidence) {
    for (const call of evidence.program.calls) {
      if (call.state === "failed" && call.error?.outcome === "rejected" && !call.isCut) yield* checkCall(call, evidence)
    }
  },
}

function* checkCall(call: CallFact, { occurrences, program }: Evidence): Iterable<string> {
  const { error } = call
  const numbers =
    error instanceof PublishFailedError
      ? error.unconfirmed.map(({ payload }) => numberIn(payload))
      : call.records.map(({ number }) => number)
  for (const number of numbers) {
    const resend = program.records[number]?.resend
    // What another call stored, and what went down with a history that had ended by then, is no lie of this one.
    if (call.isResend) continue
    const lie = occurrences.of(number).find(({ storedMs, history }) => {
      const isGone = history.endedMs !== undefined && history.endedMs <= call.settledMs
      return !isGone && (resend === undefined || storedMs < resend.startedMs)
    })
    if (lie === undefined) continue
    yield `record #${number} of call ${call.id} was rejected (${error?.message}) and is stored at offset ${lie.offset} of ${lie.history.topic}/${lie.history.partition} since ${lie.storedMs}`
  }
}
