/**
 * Whether all that one JSON Schema lets through another lets through too. The answer "yes" is proved, keyword by keyword; where neither
 * "yes" nor an example of "no" is plain, the reason says that it cannot be judged.
 */
import { annotations, type JsonDocument, type JsonPlace, pathBelow } from "./json-document.ts"
import { type Conjunct, checkKeyword } from "./json-keywords.ts"
import { disjoint, plainEqual, splitTypes } from "./json-values.ts"
import type { Reason } from "./schema-format.ts"

/** How many pairs of subschemas one comparison looks at. */
const mostSteps = 100_000

/** How many schemas may hold together by `allOf`; a schema that contains itself by it has more. */
const mostConjuncts = 1000

/** Why `reader` does not take all that `writer` lets through; empty when it does. Paths are JSON pointers into the reader, without the first slash. */
export function jsonIncompatibilities(reader: JsonPlace, writer: JsonPlace): Reason[] {
  try {
    return new JsonComparison().judge(reader, writer, "")
  } catch (error) {
    if (!(error instanceof Entangled)) throw error
    return [{ path: "", message: `they are too entangled to be judged: more than ${mostSteps} steps` }]
  }
}

class Entangled extends Error {}

/** What stands for the two schemas of a pair. */
type Keys = readonly [reader: unknown, writer: unknown]

/** Judges subschemas for the keywords that have some. */
export interface Judge {
  judge(reader: JsonPlace, writer: JsonPlace, path: string): Reason[]
}

class JsonComparison implements Judge {
  /** Pairs that are being judged further up: they are taken to hold, as schemas that contain themselves need it. */
  readonly #open = new Map<unknown, Set<unknown>>()
  readonly #known = new Map<unknown, Map<unknown, Reason[]>>()
  #assumptions = 0
  #steps = 0

  judge(readerPlace: JsonPlace, writerPlace: JsonPlace, path: string): Reason[] {
    this.#step()
    const reader = readerPlace.document.follow(readerPlace)
    const writer = writerPlace.document.follow(writerPlace)
    if (reader === undefined || writer === undefined) {
      return [{ path, message: "a $ref leads nowhere, so it cannot be judged" }]
    }
    if (reader.schema === true || writer.schema === false) return []
    if (reader.schema === false)
      return [{ path, message: "the reader takes nothing here, and the writer may write something" }]
    const keys: Keys = [
      siblings(readerPlace) === undefined ? reader.schema : readerPlace.schema,
      siblings(writerPlace) === undefined ? writer.schema : writerPlace.schema,
    ]
    const known = this.#known.get(keys[0])?.get(keys[1])
    if (known !== undefined) return known
    if (this.#open.get(keys[0])?.has(keys[1]) === true) {
      this.#assumptions++
      return []
    }
    return this.#remembered(keys, () => this.#schemas(readerPlace, writerPlace, path))
  }

  #remembered([reader, writer]: Keys, look: () => Reason[]): Reason[] {
    const before = this.#assumptions
    const open = this.#open.get(reader) ?? new Set()
    this.#open.set(reader, open.add(writer))
    const found = look()
    open.delete(writer)
    // What was found under an assumption holds only as long as that does. A failure holds in any case.
    if (this.#assumptions === before || found.length > 0) {
      const writers = this.#known.get(reader) ?? new Map()
      this.#known.set(reader, writers.set(writer, found))
    }
    return found
  }

  #schemas(reader: JsonPlace, writer: JsonPlace, path: string): Reason[] {
    const conjuncts = this.#conjuncts(writer, [])
    return this.#conjuncts(reader, []).flatMap((part) => this.#part(part, conjuncts, path))
  }

  /** One schema without references and `allOf` of the reader, against all that the writer's say together. */
  #part(reader: Conjunct, writers: readonly Conjunct[], path: string): Reason[] {
    if (writers.some((writer) => plainEqual(reader.schema, writer.schema))) return []
    return Object.keys(reader.schema)
      .filter((keyword) => !annotations.has(keyword))
      .flatMap((keyword) => {
        if (keyword === "anyOf" || keyword === "oneOf") return this.#branches(reader, writers, { keyword, path })
        const reasons = checkKeyword(keyword, { reader, writers, path, judge: this })
        return reasons.length === 0 ? reasons : this.#byBranch(reader, writers, { keyword, path, reasons })
      })
  }

  /** What the writer's schemas do not prove together, each branch of an `anyOf` or `oneOf` of theirs may prove. */
  #byBranch(
    reader: Conjunct,
    writers: readonly Conjunct[],
    { keyword, path, reasons }: { readonly keyword: string; readonly path: string; readonly reasons: Reason[] },
  ): Reason[] {
    const single = {
      schema: { [keyword]: reader.schema[keyword], ...context(keyword, reader.schema) },
      document: reader.document,
    }
    let found = reasons
    const others = writers.map(withoutUnions)
    for (const { branches, document } of unions(writers)) {
      const each = branches.map((schema) =>
        this.#part(single, [...others, ...this.#conjuncts({ schema, document }, [])], path),
      )
      found = each.flat()
      if (found.length === 0) return found
    }
    return found
  }

  #branches(
    reader: Conjunct,
    writers: readonly Conjunct[],
    { keyword, path }: { readonly keyword: "anyOf" | "oneOf"; readonly path: string },
  ): Reason[] {
    const branches = placesOf(reader, keyword)
    if (this.#someBranch(branches, writers, keyword)) return []
    const others = writers.map(withoutUnions)
    for (const { branches: own, document } of unions(writers)) {
      const every = own.every((schema) =>
        this.#someBranch(branches, [...others, ...this.#conjuncts({ schema, document }, [])], keyword),
      )
      if (every) return []
    }
    const split = splitTypes(writers)
    if (split.length > 1 && split.every((part) => this.#someBranch(branches, part, keyword))) return []
    const message =
      keyword === "anyOf"
        ? "no branch is known to take all that the writer may write"
        : "it cannot be judged whether exactly one branch takes what the writer may write"
    return [{ path: pathBelow(path, keyword), message }]
  }

  /** Whether one branch takes it all, and for `oneOf` none of the others takes any. */
  #someBranch(branches: readonly JsonPlace[], writers: readonly Conjunct[], keyword: "anyOf" | "oneOf"): boolean {
    return branches.some((branch) => {
      const parts = this.#conjuncts(branch, [])
      if (parts.some((part) => this.#part(part, writers, "").length > 0)) return false
      if (keyword === "anyOf") return true
      return branches.every(
        (other) => other === branch || this.#conjuncts(other, []).some((part) => disjoint(part, writers)),
      )
    })
  }

  #step(): void {
    if (++this.#steps > mostSteps) throw new Entangled()
  }

  /** The schema as a list of schemas that all hold, none of which has a reference or `allOf`. */
  #conjuncts(place: JsonPlace, found: Conjunct[]): Conjunct[] {
    this.#step()
    if (found.length > mostConjuncts) throw new Entangled()
    const own = siblings(place)
    const target = place.document.follow(place)
    if (target === undefined) found.push({ schema: { $ref: "" }, document: place.document })
    else if (target.schema === false) found.push({ schema: { type: [] }, document: target.document })
    else if (target.schema !== true) {
      const { allOf, ...rest } = target.schema
      found.push({ schema: allOf === undefined ? target.schema : rest, document: target.document })
      if (Array.isArray(allOf)) {
        for (const schema of allOf) this.#conjuncts({ schema, document: target.document }, found)
      }
    }
    if (own !== undefined) this.#conjuncts({ schema: own, document: place.document }, found)
    return found
  }
}

/** What stands beside a `$ref`, where that counts. */
function siblings({ schema, document }: JsonPlace): Readonly<Record<string, unknown>> | undefined {
  if (typeof schema === "boolean" || typeof schema.$ref !== "string" || document.ignoresSiblings) return undefined
  const { $ref, ...rest } = schema
  return Object.keys(rest).every((key) => annotations.has(key)) ? undefined : rest
}

/** Keywords that say together what one of them says. */
function context(keyword: string, schema: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const together = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "items",
    "prefixItems",
    "additionalItems",
  ]
  if (!["additionalProperties", "items", "additionalItems"].includes(keyword)) return {}
  return Object.fromEntries(together.filter((key) => Object.hasOwn(schema, key)).map((key) => [key, schema[key]]))
}

function unions(
  writers: readonly Conjunct[],
): { readonly branches: readonly Readonly<Record<string, unknown>>[]; readonly document: JsonDocument }[] {
  return writers.flatMap(({ schema, document }) =>
    [schema.anyOf, schema.oneOf]
      .filter((branches) => Array.isArray(branches))
      .map((branches) => ({ branches: branches as Readonly<Record<string, unknown>>[], document })),
  )
}

function withoutUnions({ schema, document }: Conjunct): Conjunct {
  const { anyOf, oneOf, ...rest } = schema
  return anyOf === undefined && oneOf === undefined ? { schema, document } : { schema: rest, document }
}

function placesOf({ schema, document }: Conjunct, keyword: string): JsonPlace[] {
  const branches = schema[keyword]
  return Array.isArray(branches) ? branches.map((branch) => ({ schema: branch, document })) : []
}
