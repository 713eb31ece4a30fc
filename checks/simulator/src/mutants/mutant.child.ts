/** Looks for a seed that notices one mutant: `mutant.child.ts <name> <seeds>`. Prints what it found as JSON. */
import process from "node:process"
import { halfOf } from "./mutant.ts"
import { mutants } from "./mutants.ts"
import { installMutant } from "./mutation-hook.ts"

const [name, seeds] = process.argv.slice(2)
const mutant = mutants.find((one) => one.name === name)
if (mutant === undefined) throw new Error(`mutant "${name}" is not known`)
installMutant(mutant)
const { halvesOf } = await import("../run.ts")
const [{ simulate }] = halvesOf(halfOf(mutant)) as [ReturnType<typeof halvesOf>[number]]

let found: { seed: number; invariant: string; text: string } | undefined
for (let seed = 1; seed <= Number(seeds) && found === undefined; seed++) {
  const [violation] = (await simulate(seed)).violations
  if (violation !== undefined) found = { seed, ...violation }
}
process.stdout.write(`${JSON.stringify(found ?? null)}\n`, () => process.exit(0))
