import { after, before, describe } from "node:test"
import { absenceChapter } from "./chapters/absence.ts"
import { appendChapter } from "./chapters/append.ts"
import { catalogChapter } from "./chapters/catalog.ts"
import { deduplicationChapter } from "./chapters/deduplication.ts"
import { faultsChapter } from "./chapters/faults.ts"
import { fidelityChapter } from "./chapters/fidelity.ts"
import { filtersChapter } from "./chapters/filters.ts"
import { groupsChapter } from "./chapters/groups.ts"
import { offsetsChapter } from "./chapters/offsets.ts"
import { placesChapter } from "./chapters/places.ts"
import { queuesChapter } from "./chapters/queues.ts"
import { readChapter } from "./chapters/read.ts"
import { stateChapter } from "./chapters/state.ts"
import { transactionsChapter } from "./chapters/transactions.ts"
import { upkeepChapter } from "./chapters/upkeep.ts"
import { waitingChapter } from "./chapters/waiting.ts"
import type { DriverUnderTest } from "./rig/factory.ts"
import { Rig } from "./rig/rig.ts"

const chapters: Readonly<Record<string, (rig: Rig) => void>> = {
  catalog: catalogChapter,
  upkeep: upkeepChapter,
  append: appendChapter,
  deduplication: deduplicationChapter,
  read: readChapter,
  waiting: waitingChapter,
  filters: filtersChapter,
  places: placesChapter,
  offsets: offsetsChapter,
  groups: groupsChapter,
  state: stateChapter,
  queues: queuesChapter,
  transactions: transactionsChapter,
  faults: faultsChapter,
  fidelity: fidelityChapter,
  absence: absenceChapter,
}

/** Chapters of the suite, for a driver that is still being written. */
export const chapterNames: readonly string[] = Object.keys(chapters)

/**
 * Declares the tests that every driver must pass, in `node:test`. They speak the driver contract alone; what the manifest says is
 * absent is tested to be refused, and what cannot be tested is skipped with its reason.
 * @param name What is under test, for the report: "embedded file:".
 * @param options `only`: names of chapters to run; by default all.
 */
export function conformance(
  name: string,
  under: DriverUnderTest,
  options: { readonly only?: readonly string[] } = {},
): void {
  for (const only of options.only ?? []) {
    if (!(only in chapters)) throw new Error(`no chapter ${JSON.stringify(only)}: there are ${chapterNames.join(", ")}`)
  }
  describe(name, () => {
    const rig = new Rig(under)
    before(() => rig.open())
    after(() => rig.close())
    for (const [chapter, declare] of Object.entries(chapters)) {
      if (options.only === undefined || options.only.includes(chapter)) declare(rig)
    }
  })
}
