/** Looks for a seed that notices one mutant: `mutant.child.ts <name> <seeds>`. Prints how far it is now and then, and last what it found, as JSON. */
import process from "node:process"
import { partOf } from "./mutant.ts"
import { mutants } from "./mutants.ts"
import { installMutant } from "./mutation-hook.ts"

/** A seed that runs in circles is noticed by the silence. */
const seedsBetweenReports = 20

const [name, seeds] = process.argv.slice(2)
const mutant = mutants.find((one) => one.name === name)
if (mutant === undefined) throw new Error(`mutant "${name}" is not known`)
installMutant(mutant)
const { partsOf } = await import("../run.ts")
const [{ simulate }] = partsOf(partOf(mutant)) as [ReturnType<typeof partsOf>[number]]

let found: { seed: number; invariant: string; text: string } | undefined
for (let seed = 1; seed <= Number(seeds) && found === undefined; seed++) {
  if (seed % seedsBetweenReports === 0) process.stdout.write(`${seed}\n`)
  const [violation] = (await simulate(seed)).violations
  if (violation !== undefined) found = { seed, ...violation }
}
process.stdout.write(`${JSON.stringify(found ?? null)}\n`, () => process.exit(0))
