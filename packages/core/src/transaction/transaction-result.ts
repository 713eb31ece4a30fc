import type { StagedResult } from "@millrace/contract"
import type { Confirmation, SendResult } from "../producer/confirmation.ts"

/** Where the records of a committed transaction are; batches of a partition that stand together are one range. */
export function resultOf(staged: readonly StagedResult[]): SendResult {
  const confirmations: Confirmation[] = []
  let duplicates = 0
  for (const { stream, topic, partition, base, contiguous, count, duplicates: own } of staged) {
    duplicates += own
    if (base === undefined || !contiguous) continue
    const last = confirmations.at(-1)
    const follows =
      last !== undefined &&
      last.partition === partition &&
      last.topic === topic &&
      last.stream === stream &&
      last.baseOffset + BigInt(last.count) === base
    if (follows) confirmations[confirmations.length - 1] = { ...last, count: last.count + count }
    else confirmations.push({ stream, topic, partition, baseOffset: base, count })
  }
  return duplicates === 0 ? { confirmations } : { confirmations, duplicates }
}
