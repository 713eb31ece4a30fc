import type { ReadingCheck } from "../facts.ts"
import { atMostOnce } from "./at-most-once.ts"
import { commitsOnlyHandled } from "./commits-only-handled.ts"
import { neverBack } from "./never-back.ts"
import { onlyOwned } from "./only-owned.ts"
import { orderPerOwner } from "./order-per-owner.ts"
import { readAheadBound } from "./read-ahead-bound.ts"
import { startsWhereStored } from "./starts-where-stored.ts"
import { storedBeforeItGoes } from "./stored-before-it-goes.ts"

/** Every check of one simulation. */
export function readingChecks(): readonly ReadingCheck[] {
  return [
    onlyOwned,
    orderPerOwner,
    startsWhereStored,
    commitsOnlyHandled,
    neverBack(),
    storedBeforeItGoes,
    atMostOnce,
    readAheadBound,
  ]
}
