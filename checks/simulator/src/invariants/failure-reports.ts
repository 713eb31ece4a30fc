import { PublishFailedError } from "@millrace/core"
import { type CallFact, numberIn } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"
import type { Occurrences } from "./occurrences.ts"
import { takeRange } from "./ranges.ts"

/** `committed` and `unconfirmed` of a failed publish are the call, each record in one of them; a request that failed stops those behind it. */
export const failureReports: Invariant = {
  name: "failure reports are complete",
  *check(evidence) {
    for (const call of evidence.program.calls) {
      if (call.error instanceof PublishFailedError) yield* checkCall(call, call.error, evidence)
    }
  },
}

function* checkCall(call: CallFact, error: PublishFailedError, evidence: Evidence): Iterable<string> {
  const { histories, occurrences } = evidence
  const own = new Set(call.records.map(({ number }) => number))
  const left = new Set(own)
  const committed: number[] = []
  // First, since a range can be that of two histories: of these, the one whose records are not given back.
  for (const { payload } of error.unconfirmed) {
    const number = numberIn(payload)
    if (!own.has(number)) yield `call ${call.id} reports record #${number}, which is not its own`
    else if (!left.delete(number)) yield `call ${call.id} reports record #${number} twice`
  }
  for (const range of error.committed) {
    const numbers = takeRange(range, left, histories)
    for (const number of numbers ?? []) committed.push(number)
    if (numbers !== undefined) continue
    const { partition, baseOffset, count } = range
    yield `call ${call.id} reports ${count} committed records at offset ${baseOffset} of partition ${partition} that are not its own, or twice`
  }
  if (left.size > 0 && !call.isResend) {
    yield `call ${call.id} reports ${own.size - left.size} of ${own.size} records; #${[...left][0]} is missing`
  }
  yield* checkRequests(call, error, { committed, occurrences })
  if (error.unconfirmed.length === 0) yield `call ${call.id} failed without an unconfirmed record`
}

/** What is stored although its request failed (its confirmation was lost) stops nothing: the backend had refused a gap. */
function* checkRequests(
  call: CallFact,
  error: PublishFailedError,
  { committed, occurrences }: { readonly committed: readonly number[]; readonly occurrences: Occurrences },
): Iterable<string> {
  if (call.isResend || call.records.length === 0) return
  const first = call.records[0]?.number ?? 0
  const requestOf = (number: number): number => Math.floor((number - first) / call.lane.requestLength)
  const missing = error.unconfirmed
    .map(({ payload }) => numberIn(payload))
    .filter((number) => occurrences.of(number).length === 0)
  const failed = Math.min(...missing.map(requestOf))
  const behind = committed.find((number) => requestOf(number) > failed)
  if (behind !== undefined) yield `call ${call.id} stored record #${behind}, behind its request ${failed}, which failed`
}
