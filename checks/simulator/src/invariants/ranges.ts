import type { Confirmation } from "@millrace/core"
import type { History } from "../backend/sim-topic.ts"
import { numberIn } from "../workload/history.ts"

/**
 * The numbers of the records in a confirmed range, taken out of `left`; `undefined` when the range holds others. A call can lie in several
 * histories of its topic, and a confirmation does not say which: any that holds records that are left is right.
 */
export function takeRange(
  { topic, partition, baseOffset, count }: Confirmation,
  left: Set<number>,
  histories: readonly History[],
): readonly number[] | undefined {
  const base = Number(baseOffset)
  for (const history of histories) {
    if (history.topic !== topic || history.partition !== partition) continue
    const numbers = history.log.records.slice(base, base + count).map(({ payload }) => numberIn(payload))
    if (numbers.length !== count || !numbers.every((number) => left.has(number))) continue
    for (const number of numbers) left.delete(number)
    return numbers
  }
  return undefined
}
