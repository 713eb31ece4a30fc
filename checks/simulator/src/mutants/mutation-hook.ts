import { registerHooks } from "node:module"
import { type Mutant, mutated } from "./mutant.ts"

/** From here on the core is loaded with the mutant in it. To be called before anything imports the core. */
export function installMutant(mutant: Mutant): void {
  const place = `/core/src/${mutant.file}`
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context)
      if (!url.endsWith(place)) return loaded
      const source = loaded.source
      if (source === null || source === undefined) throw new Error(`${url} was loaded without its source`)
      const text = typeof source === "string" ? source : new TextDecoder().decode(source as Uint8Array)
      return { ...loaded, source: mutated(text, mutant) }
    },
  })
}
