import { type QueueSpec, TimeoutError } from "@millrace/contract"

/** How long the queue waits for a delivery, in ms; infinite where handing out settles. */
export function waitOf({ ackPolicy, ackWaitMs, backoffMs }: QueueSpec, deliveries: number): number {
  if (ackPolicy === "none") return Number.POSITIVE_INFINITY
  if (backoffMs.length === 0) return ackWaitMs
  return backoffMs[Math.min(deliveries, backoffMs.length) - 1] as number
}

/** The shortest of all its waits. */
export function shortestWaitMs(spec: QueueSpec): number {
  if (spec.ackPolicy === "none") return Number.POSITIVE_INFINITY
  return spec.backoffMs.length === 0 ? spec.ackWaitMs : Math.min(...spec.backoffMs)
}

/** What a request for messages waits, at the most and at the least, in ms. */
const longestPullMs = 5000
const shortestPullMs = 10
/** One part of so many of a wait. */
const pullPart = 8

/**
 * How long one request may wait for messages, in ms. The waits of its messages count from before the request, since nobody here knows when
 * within it the answer was made: so it takes no more than a small part of them.
 */
export function longestUsefulPullMs(waitMs: number): number {
  return Math.min(longestPullMs, Math.max(shortestPullMs, waitMs / pullPart))
}

/** Why the signal of a handler fires whose message is another's. */
export function overdue(what: string): TimeoutError {
  return new TimeoutError(`${what}: the wait of the message is over, and it is handed out again`, {
    outcome: "rejected",
  })
}
