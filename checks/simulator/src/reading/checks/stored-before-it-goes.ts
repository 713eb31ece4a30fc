import type { EndFact, ReadingCheck } from "../facts.ts"

/** What was handled of a partition is stored before another member gets it, and when the program ends in order. */
export const storedBeforeItGoes: ReadingCheck = {
  name: "what is handled is stored before the partition goes",
  released: missing,
  ended: missing,
}

function missing({ program, owner, lane, stored }: EndFact): string | undefined {
  if (!owner.stores || !lane.hasHandled || program.endsInHaste || stored >= lane.handledBehind) return undefined
  if (lane.isStoreBroken || lane.isCutOff) return undefined
  // What is in hand has a second, and at the deadline the partition goes, whatever is not done.
  if (program.clock.monotonicMs() - lane.leavingSinceMs >= Math.min(1000, 0.5 * owner.rebalanceTimeoutMs))
    return undefined
  const { topic, partition } = lane.place
  return `program ${program.id} has handled ${topic}/${partition} up to ${lane.handledBehind}; ${stored} is stored when it goes`
}
