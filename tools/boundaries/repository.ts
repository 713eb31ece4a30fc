import { readFileSync } from "node:fs"
import { join } from "node:path"
import process from "node:process"
import { listFiles } from "../source-files.ts"
import { findCycles } from "./cycles.ts"
import { checkGlobals } from "./global-rules.ts"
import { checkImports } from "./import-rules.ts"
import { roomOf } from "./rooms.ts"
import { readFacts } from "./source-facts.ts"
import type { Violation } from "./violation.ts"

const areas = ["packages", "drivers", "apps", "checks", "tools", "examples"]

/** Checks every source of the repository whose root is the working directory. */
export function checkRepository(): { readonly files: number; readonly violations: readonly Violation[] } {
  const sources = areas
    .flatMap((area) => listFiles(area, (path) => /\.[jt]s$/.test(path)))
    .map((path) => readFacts(path, readFileSync(join(process.cwd(), path), "utf8")))
  const declared = new Map<string, readonly string[]>()
  const declaredIn = (folder: string): readonly string[] => {
    const known = declared.get(folder) ?? readDependencies(folder)
    declared.set(folder, known)
    return known
  }
  const violations = [
    ...sources.flatMap((source) =>
      checkImports(source, { room: declaredIn(roomOf(source.path)?.folder ?? ""), root: declaredIn("") }),
    ),
    ...sources.flatMap(checkGlobals),
    ...findCycles(sources),
  ]
  return { files: sources.length, violations }
}

/** Folders of programs have no package.json, and so no dependencies of their own. */
function readDependencies(folder: string): string[] {
  let text: string
  try {
    text = readFileSync(join(process.cwd(), folder, "package.json"), "utf8")
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return []
    throw error
  }
  const { dependencies = {}, devDependencies = {} } = JSON.parse(text) as Record<string, Record<string, string>>
  return [...Object.keys(dependencies), ...Object.keys(devDependencies)]
}
