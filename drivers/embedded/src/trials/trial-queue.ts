/** The queue of the trials, and what its takers write down. */
import type { QueueSpec } from "@millrace/contract"

/** The wait is longer than any trial: what comes again does so because its taker is gone. */
const spec: QueueSpec = {
  ackWaitMs: 600_000,
  backoffMs: [],
  maxAckPending: 1000,
  ackPolicy: "explicit",
  startAt: { kind: "first" },
}

/** The name and the settings. */
export const trialQueue: { readonly name: string; readonly spec: QueueSpec } = { name: "work", spec }

/** A message that a taker got. */
export interface Taken {
  readonly offset: number
  readonly deliveries: number
}

/** Lines of a taker's file. */
export function takenText(taken: readonly Taken[]): string {
  return taken.map(({ offset, deliveries }) => `${offset} ${deliveries}\n`).join("")
}

/** The lines of a taker's file; the last one may be torn. */
export function takenOf(text: string): Taken[] {
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => {
      const [offset, deliveries] = line.split(" ").map(Number)
      return { offset: offset ?? -1, deliveries: deliveries ?? -1 }
    })
}
