import {
  BufferFullError,
  InvalidError,
  type MillraceError,
  NotFoundError,
  RecordTooLargeError,
  TimeoutError,
} from "@millrace/contract"
import type { CallFact } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"

/** Where nothing goes wrong nothing fails, but for records that are too large, and partitions and topics that are not there. */
export const noFailureInCalm: Invariant = {
  name: "no failure without a cause",
  *check(evidence) {
    if (!evidence.isCalm) return
    for (const call of evidence.program.calls) {
      if (call.isResend) continue
      if (call.state === "failed" && !isEarned(call, evidence)) yield `call ${call.id} failed: ${call.error?.message}`
    }
  },
}

function isEarned({ error, records, lane }: CallFact, { largestRecordBytes, budgets }: Evidence): boolean {
  const cause = error?.kind === "publish-failed" ? (error.cause as MillraceError) : error
  // Its buffer is small, its disk is full or broken, its program ends when it likes.
  if (lane.isSpooled && error?.kind !== "publish-failed") return true
  // A bounded buffer may be full; an unbounded one may not.
  if (cause instanceof BufferFullError || (cause instanceof TimeoutError && /blockTimeoutMs/.test(cause.message))) {
    return (budgets.get(lane.id) ?? Number.POSITIVE_INFINITY) < 1 << 20
  }
  // Behind a batch that was too large, where several are on their way.
  if (cause?.kind === "throttled") return true
  if (cause instanceof NotFoundError) return lane.kind === "client" || lane.kind === "batching"
  if (cause instanceof InvalidError) return /partition \d+ of topic/.test(cause.message)
  if (!(cause instanceof RecordTooLargeError)) return false
  return lane.kind === "batching" || records.some(({ bytes }) => bytes > largestRecordBytes)
}
