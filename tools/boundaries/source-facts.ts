/** What the rules need to know of a source file. */
import type { Node } from "oxc-parser"
import { parseSync, Visitor } from "oxc-parser"

/** One import, re-export or import type. */
export interface ImportFact {
  readonly specifier: string
  readonly line: number
  /** Erased before the program runs. */
  readonly typeOnly: boolean
  readonly dynamic: boolean
  /** Imported names; empty for `import "x"`, `export *` and dynamic imports. */
  readonly names: readonly string[]
}

/** The specifier of an `import()` whose target is known only when the program runs. */
export const computed = "(computed)"

/** One use of a global: `setTimeout`, `Date.now`, `new Date()`. */
export interface GlobalFact {
  readonly name: string
  readonly line: number
}

/** A parsed file. */
export interface SourceFacts {
  readonly path: string
  readonly imports: readonly ImportFact[]
  readonly globals: readonly GlobalFact[]
}

/** Parses one file. @throws Error when it is not TypeScript */
export function readFacts(path: string, text: string): SourceFacts {
  const { program, module, errors } = parseSync(path, text)
  if (errors[0] !== undefined) throw new Error(`${path}: ${errors[0].message}`)
  const lineAt = lineCounter(text)
  const imports: ImportFact[] = []
  const globals: GlobalFact[] = []
  for (const { start, moduleRequest, entries } of module.staticImports) {
    const names = entries.map(({ importName }) => importName.name ?? importName.kind)
    const typeOnly = entries.length > 0 && entries.every(({ isType }) => isType)
    imports.push({ specifier: moduleRequest.value, line: lineAt(start), typeOnly, dynamic: false, names })
  }
  for (const { start, entries } of module.staticExports) {
    for (const { moduleRequest, isType, importName } of entries) {
      if (moduleRequest === null) continue
      const names = importName.name === null ? [] : [importName.name]
      imports.push({ specifier: moduleRequest.value, line: lineAt(start), typeOnly: isType, dynamic: false, names })
    }
  }
  const names = new Set<number>()
  new Visitor({
    ImportExpression({ source, start }) {
      const specifier = literal(source) ?? computed
      imports.push({ specifier, line: lineAt(start), typeOnly: false, dynamic: true, names: [] })
    },
    TSImportType({ source, start }) {
      imports.push({ specifier: source.value, line: lineAt(start), typeOnly: true, dynamic: false, names: [] })
    },
    MemberExpression(node) {
      if (!node.computed) names.add(node.property.start)
      const property = node.computed ? literal(node.property) : node.property.name
      if (node.object.type === "Identifier" && property !== undefined) {
        globals.push({ name: `${node.object.name}.${property}`, line: lineAt(node.start) })
      }
    },
    Property(node) {
      if (!node.computed && !node.shorthand) names.add(node.key.start)
    },
    ImportSpecifier(node) {
      names.add(node.imported.start)
      names.add(node.local.start)
    },
    MethodDefinition: (node) => void names.add(node.key.start),
    PropertyDefinition: (node) => void names.add(node.key.start),
    TSMethodSignature: (node) => void names.add(node.key.start),
    TSPropertySignature: (node) => void names.add(node.key.start),
    NewExpression(node) {
      if (node.callee.type !== "Identifier" || node.arguments.length > 0) return
      globals.push({ name: `new ${node.callee.name}()`, line: lineAt(node.start) })
    },
    CallExpression(node) {
      if (node.callee.type !== "Identifier") return
      globals.push({ name: `${node.callee.name}()`, line: lineAt(node.start) })
    },
    Identifier(node) {
      if (!names.has(node.start)) globals.push({ name: node.name, line: lineAt(node.start) })
    },
  }).visit(program)
  return { path, imports, globals }
}

function literal(node: Node): string | undefined {
  return node.type === "Literal" && typeof node.value === "string" ? node.value : undefined
}

function lineCounter(text: string): (offset: number) => number {
  const ends = [...text.matchAll(/\n/g)].map(({ index }) => index)
  return (offset) => {
    const behind = ends.findIndex((end) => end >= offset)
    return (behind === -1 ? ends.length : behind) + 1
  }
}
