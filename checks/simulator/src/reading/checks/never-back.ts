import type { ReadingCheck } from "../facts.ts"
import { placeKey } from "../program.ts"

/** What a program stores of a partition never goes back, unless it says so itself. */
export function neverBack(): ReadingCheck {
  const last = new Map<string, bigint>()
  return {
    name: "progress never goes back",
    storing({ program, owner, entry, lane }) {
      const key = `${program.id} ${placeKey(entry)} ${entry.lineage} ${String(entry.claim?.token)}`
      const before = last.get(key) ?? 0n
      if (entry.offset >= before || lane?.isWilful === true) last.set(key, entry.offset)
      const mayGoBack = lane === undefined || lane.isWilful || lane.jumps.some(({ from, to }) => to < from)
      if (entry.offset >= before || mayGoBack || owner.options.allowReplay || owner.semantics === "onRead")
        return undefined
      return `program ${program.id} stores ${entry.offset} for ${entry.topic}/${entry.partition} behind ${before}`
    },
  }
}
