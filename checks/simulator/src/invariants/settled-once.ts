import type { Invariant } from "./invariant.ts"

/** Every call settles, once. */
export const settledOnce: Invariant = {
  name: "every call settles once",
  *check({ program }) {
    for (const call of program.calls) {
      if (call.isCut && call.settlements === 0) continue
      if (call.settlements !== 1) yield `call ${call.id} (${call.lane.kind}) settled ${call.settlements} times`
    }
  },
}
