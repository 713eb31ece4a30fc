/** Imports the package of its argument and says how long that took, how much heap it keeps, and what of the codecs' libraries came with it. */
import { registerHooks } from "node:module"

const [name] = process.argv.slice(2) as [string]
const libraries = ["ajv", "apache-arrow", "avsc", "bson", "cborg", "msgpackr", "protobufjs"]
const heavy = new Set<string>()
registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context)
    for (const name of libraries) if (resolved.url.includes(`/node_modules/${name}/`)) heavy.add(name)
    return resolved
  },
})
const heapBefore = process.memoryUsage().heapUsed
const startMs = performance.now()
await import(name)
const ms = performance.now() - startMs
process.send?.({ ms, bytes: process.memoryUsage().heapUsed - heapBefore, heavy: [...heavy] })
