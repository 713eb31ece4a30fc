import type { SendResult } from "@millrace/core"
import type { CallFact } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"
import { takeRange } from "./ranges.ts"

/** Nothing that was confirmed is missing: it was stored before the program heard so, at the offsets that it was told. */
export const confirmedIsStored: Invariant = {
  name: "confirmed is stored",
  *check(evidence) {
    for (const call of evidence.program.calls) {
      if (call.state !== "done" || call.promises !== "confirmed") continue
      yield* checkStored(call, evidence)
      yield* checkOffsets(call, call.result as SendResult, evidence)
    }
  },
}

function* checkStored(call: CallFact, { occurrences }: Evidence): Iterable<string> {
  for (const { number } of call.records) {
    const isThere = occurrences.of(number).some(({ storedMs }) => storedMs <= call.settledMs)
    if (!isThere) yield `record #${number} of call ${call.id} was confirmed at ${call.settledMs} and is not stored then`
  }
}

function* checkOffsets(call: CallFact, { confirmations }: SendResult, { histories }: Evidence): Iterable<string> {
  const left = new Set(call.records.map(({ number }) => number))
  for (const range of confirmations) {
    if (takeRange(range, left, histories) !== undefined) continue
    const { partition, baseOffset, count } = range
    const last = baseOffset + BigInt(count) - 1n
    yield `call ${call.id} was told offsets ${baseOffset} to ${last} of partition ${partition}, where its records do not lie`
  }
  if (confirmations.length > 0 && left.size > 0 && !call.isResend) {
    yield `call ${call.id} of ${call.records.length} records was not told the offsets of ${left.size}`
  }
}
