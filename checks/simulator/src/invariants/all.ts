import { boundedBuffers } from "./bounded-buffers.ts"
import { confirmedIsStored } from "./confirmed-is-stored.ts"
import { failureReports } from "./failure-reports.ts"
import { flushesWait } from "./flushes-wait.ts"
import type { Invariant } from "./invariant.ts"
import { noDuplicates } from "./no-duplicates.ts"
import { noFailureInCalm } from "./no-failure-in-calm.ts"
import { nothingLost } from "./nothing-lost.ts"
import { order } from "./order.ts"
import { settledOnce } from "./settled-once.ts"
import { doubledIsCounted, spoolKeeps, toldOnce } from "./spool-keeps.ts"
import { trueFailures } from "./true-failures.ts"
import { trueRejections } from "./true-rejections.ts"

/** Every invariant that is judged when a simulation is over. */
export const invariants: readonly Invariant[] = [
  confirmedIsStored,
  order,
  noDuplicates,
  trueRejections,
  settledOnce,
  failureReports,
  nothingLost,
  spoolKeeps,
  toldOnce,
  doubledIsCounted,
  trueFailures,
  flushesWait,
  boundedBuffers,
  noFailureInCalm,
]
