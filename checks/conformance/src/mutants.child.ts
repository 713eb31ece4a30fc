/** Runs the suite over wrong drivers; most of its tests fail, which is what its parent expects. */
import { embeddedDriver } from "@millrace/embedded"
import { mutants, mutated } from "./rig/mutant.ts"
import { conformance } from "./suite.ts"

for (const mutant of mutants) {
  conformance(
    mutant.name,
    {
      driver: mutated(embeddedDriver, mutant),
      target: () => ({ scheme: "memory", hosts: [], path: "", options: {} }),
      isolated: "every connection to memory: has a log of its own",
      cleanup: async () => {},
    },
    { only: [mutant.chapter] },
  )
}
