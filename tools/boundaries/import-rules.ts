/** Which imports a file may have. */
import { isBuiltin } from "node:module"
import { posix } from "node:path"
import type { Room } from "./rooms.ts"
import { isOurs, isTest, roomOf } from "./rooms.ts"
import type { ImportFact, SourceFacts } from "./source-facts.ts"
import { computed } from "./source-facts.ts"
import type { Violation } from "./violation.ts"

/** Package names that the package.json of the room, and that of the root, declare. */
export interface Declared {
  readonly room: readonly string[]
  readonly root: readonly string[]
}

/** The imports of one file that break an arrow. */
export function checkImports(source: SourceFacts, declared: Declared): Violation[] {
  const room = roomOf(source.path)
  if (room === undefined) {
    return [{ path: source.path, line: 1, message: "is in no room: add its folder to tools/boundaries/rooms.ts" }]
  }
  return source.imports.flatMap((fact) => {
    const message =
      fact.specifier === computed ? checkComputed(source.path) : checkImport(source.path, fact, { room, declared })
    return message === undefined ? [] : [{ path: source.path, line: fact.line, message }]
  })
}

function checkImport(
  path: string,
  fact: ImportFact,
  place: { readonly room: Room; readonly declared: Declared },
): string | undefined {
  return fact.specifier.startsWith(".")
    ? checkRelative(path, fact.specifier, place.room)
    : checkNamed(path, fact, place)
}

function checkComputed(path: string): string | undefined {
  if (isTest(path) || !/^(packages|drivers|apps)\//.test(path)) return undefined
  return "an import() of a computed name can be neither bundled nor checked: write the name as a literal"
}

function checkRelative(path: string, specifier: string, room: Room): string | undefined {
  const target = posix.join(posix.dirname(path), specifier)
  if (!target.startsWith(`${room.folder}/`)) {
    const other = roomOf(target)
    return `"${specifier}" leaves the room ${room.folder}: import ${other?.name === undefined ? "nothing from there" : `"${other.name}"`}`
  }
  // A test may stand for a user of the package.
  if (/(^|\/)index\.[jt]s$/.test(target) && !isTest(path)) {
    return `"${specifier}" is a list of exports for other rooms: import the file that has the name itself`
  }
  return undefined
}

function checkNamed(
  path: string,
  { specifier, typeOnly, dynamic }: ImportFact,
  { room, declared }: { readonly room: Room; readonly declared: Declared },
): string | undefined {
  if (isBuiltin(specifier)) {
    return specifier.startsWith("node:") ? undefined : `"${specifier}" is a module of Node: write "node:${specifier}"`
  }
  const name = packageName(specifier)
  if (isOurs(name)) return checkOurs(specifier, name, { room, typeOnly, dynamic, test: isTest(path) })
  if (declared.room.includes(name)) return undefined
  const mayUseRoot = isTest(path) || !/^(packages|drivers|apps)\//.test(path)
  if (mayUseRoot && declared.root.includes(name)) return undefined
  return `"${name}" is not a dependency of ${room.folder}: use what Node has, or declare it in ${room.folder}/package.json with a line in docs/dependencies.md`
}

function checkOurs(
  specifier: string,
  name: string,
  place: { readonly room: Room; readonly typeOnly: boolean; readonly dynamic: boolean; readonly test: boolean },
): string | undefined {
  const { room, typeOnly, dynamic, test } = place
  if (specifier !== name) return `"${specifier}" goes past the exports: import "${name}"`
  if (name === room.name) return `"${name}" is this room itself: import the file by its relative path`
  if (room.imports.includes(name)) return undefined
  if (test && room.importsInTests?.includes(name)) return undefined
  if (room.importsLazily?.includes(name)) {
    return dynamic || typeOnly
      ? undefined
      : `"${name}" may be imported by import() only, so that bundles hold what is used`
  }
  const allowed = room.imports.length === 0 ? "nothing of ours" : room.imports.join(", ")
  return `"${name}" is behind a wall: ${room.folder} may import ${allowed}`
}

function packageName(specifier: string): string {
  return specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/")
}
