/** Import cycles between files, of imports that remain when the program runs. */
import { posix } from "node:path"
import type { SourceFacts } from "./source-facts.ts"
import type { Violation } from "./violation.ts"

/** One violation a cycle, at the import that closes it. Every file is visited once. */
export function findCycles(sources: readonly SourceFacts[]): Violation[] {
  const byPath = new Map(sources.map((source) => [source.path, source]))
  const done = new Set<string>()
  const violations: Violation[] = []
  const visit = (path: string, trail: readonly string[]): void => {
    if (done.has(path)) return
    const here = [...trail, path]
    for (const { specifier, line, typeOnly, dynamic } of byPath.get(path)?.imports ?? []) {
      if (typeOnly || dynamic || !specifier.startsWith(".")) continue
      const target = posix.join(posix.dirname(path), specifier)
      const start = here.indexOf(target)
      if (start !== -1) {
        const cycle = [...here.slice(start), target].join(" → ")
        violations.push({ path, line, message: `closes a cycle: ${cycle}: move what both need into a file of its own` })
      } else if (byPath.has(target)) visit(target, here)
    }
    done.add(path)
  }
  for (const { path } of sources) visit(path, [])
  return violations
}
