/**
 * Whether one Avro schema can read what another wrote (Avro 1.12, "Schema Resolution"), with every reason and its path. `createResolver` of
 * the library answers the same question with the first reason.
 */
import type { AvroField, AvroType } from "./avro-type.ts"
import type { Reason } from "./schema-format.ts"

/** Types that a reader takes besides the writer's own. */
const promotions: Readonly<Record<string, readonly string[]>> = {
  long: ["int"],
  float: ["int", "long"],
  double: ["int", "long", "float"],
  string: ["bytes"],
  bytes: ["string"],
}

/** Why `reader` cannot read what `writer` wrote; empty when it can. Paths begin at the reader's record that the field is of. */
export function avroIncompatibilities(reader: AvroType, writer: AvroType): Reason[] {
  const failed: Pairs = new Map()
  for (;;) {
    const pass = new Pass(failed)
    const found: Found = []
    pass.compare(reader, writer, { path: reader.name ?? "", found })
    // What was taken for readable further up may have failed since: then all that relied on it is looked at again.
    if (!pass.grew) return flat(found, new Set())
  }
}

/** Reasons, and those of records that were met on the way, which are told once however often they are met. */
type Found = (Reason | Found)[]

/** Pairs of records, reader first, with what was found. */
type Pairs = Map<AvroType, Map<AvroType, Found>>

/** Where a comparison tells what it finds. A trial tells nobody. */
interface Place {
  readonly path: string
  readonly found: Found | undefined
}

/**
 * One walk through both schemas. A pair of records is looked at once; while it is looked at it counts as readable, as records that hold
 * themselves need it.
 */
class Pass {
  grew = false
  readonly #failed: Pairs
  readonly #done: Pairs = new Map()

  constructor(failed: Pairs) {
    this.#failed = failed
  }

  compare(readerType: AvroType, writerType: AvroType, place: Place): boolean {
    const reader = plain(readerType)
    const writer = plain(writerType)
    if (kindOf(writer) === "union") return this.#everyBranch(reader, writer, place)
    if (kindOf(reader) === "union") return this.#someBranch(reader, writer, place)
    if (kindOf(reader) === kindOf(writer)) return this.#sameKind(reader, writer, place)
    if (promotions[kindOf(reader)]?.includes(kindOf(writer)) === true) return true
    return refuse(place, `${named(writer)} cannot be read as ${named(reader)}`)
  }

  #everyBranch(reader: AvroType, writer: AvroType, place: Place): boolean {
    let readable = true
    for (const branch of writer.types ?? []) readable = this.compare(reader, branch, place) && readable
    return readable
  }

  #someBranch(reader: AvroType, writer: AvroType, place: Place): boolean {
    const branches = reader.types ?? []
    const trial = { path: place.path, found: undefined }
    if (branches.some((branch) => this.compare(branch, writer, trial))) return true
    const meant = branches.find((branch) => kindOf(branch) === kindOf(writer) && namesAgree(branch, writer))
    if (meant !== undefined) return this.compare(meant, writer, place)
    return refuse(place, `no branch of the reader's union ${named(reader)} reads ${named(writer)}`)
  }

  #sameKind(reader: AvroType, writer: AvroType, place: Place): boolean {
    switch (kindOf(reader)) {
      case "array":
        return this.compare(reader.itemsType as AvroType, writer.itemsType as AvroType, below(place, "[]"))
      case "map":
        return this.compare(reader.valuesType as AvroType, writer.valuesType as AvroType, below(place, "{}"))
      case "record":
        return namesMatch(reader, writer, place) && this.#records(reader, writer, place)
      case "enum":
        return namesMatch(reader, writer, place) && symbolsMatch(reader, writer, place)
      case "fixed":
        if (!namesMatch(reader, writer, place)) return false
        if (reader.size === writer.size) return true
        return refuse(place, `the fixed size is ${writer.size}, and the reader's is ${reader.size}`)
      default:
        return true
    }
  }

  #records(reader: AvroType, writer: AvroType, place: Place): boolean {
    const known = lookup(this.#failed, reader, writer) ?? lookup(this.#done, reader, writer)
    const found = known ?? this.#look(reader, writer)
    if (found.length === 0) return true
    place.found?.push(found)
    return false
  }

  #look(reader: AvroType, writer: AvroType): Found {
    enter(this.#done, [reader, writer], [])
    const found: Found = []
    this.#fields(reader, writer, found)
    enter(this.#done, [reader, writer], found)
    if (found.length > 0) {
      this.grew = true
      enter(this.#failed, [reader, writer], found)
    }
    return found
  }

  #fields(reader: AvroType, writer: AvroType, found: Found): void {
    const written = new Map((writer.fields ?? []).map((field) => [field.name, field]))
    for (const field of reader.fields ?? []) {
      const place = { path: `${reader.name ?? ""}.${field.name}`, found }
      const names = [...new Set([field.name, ...field.aliases])].filter((name) => written.has(name))
      if (names.length > 1) {
        refuse(place, `its name and aliases fit several fields of the writer: ${names.join(", ")}`)
      } else if (names.length === 1) {
        this.compare(field.type, (written.get(names[0] as string) as AvroField).type, place)
      } else if (field.defaultValue() === undefined) {
        refuse(place, "the writer has no such field, and it has no default")
      }
    }
  }
}

function flat(found: Found, seen: Set<Found>): Reason[] {
  if (seen.has(found)) return []
  seen.add(found)
  return found.flatMap((entry) => (Array.isArray(entry) ? flat(entry, seen) : [entry]))
}

function refuse({ path, found }: Place, message: string): false {
  found?.push({ path, message })
  return false
}

function below({ path, found }: Place, step: string): Place {
  return { path: path + step, found }
}

function lookup(pairs: Pairs, reader: AvroType, writer: AvroType): Found | undefined {
  return pairs.get(reader)?.get(writer)
}

function enter(pairs: Pairs, [reader, writer]: readonly [AvroType, AvroType], found: Found): void {
  const writers = pairs.get(reader) ?? new Map()
  pairs.set(reader, writers.set(writer, found))
}

function namesMatch(reader: AvroType, writer: AvroType, place: Place): boolean {
  if (namesAgree(reader, writer)) return true
  return refuse(
    place,
    `the writer's ${named(writer)} has neither the name nor an alias of the reader's ${named(reader)}`,
  )
}

function symbolsMatch(reader: AvroType, writer: AvroType, place: Place): boolean {
  const known = new Set(reader.symbols)
  const missing = (writer.symbols ?? []).filter((symbol) => !known.has(symbol))
  if (missing.length === 0 || reader.default !== undefined) return true
  return refuse(place, `the reader lacks the symbols ${missing.join(", ")}, and has no default`)
}

/** A logical type is read as what it is made of. */
function plain(type: AvroType): AvroType {
  return type.underlyingType ?? type
}

/** The type as Avro calls it; the library tells kinds of unions, errors and long apart. */
function kindOf(type: AvroType): string {
  const { typeName } = type
  if (typeName.startsWith("union:")) return "union"
  if (typeName === "error") return "record"
  return typeName === "abstract:long" ? "long" : typeName
}

function namesAgree(reader: AvroType, writer: AvroType): boolean {
  if (writer.name === undefined) return true
  return reader.name === writer.name || (reader.aliases ?? []).includes(writer.name)
}

function named(type: AvroType): string {
  const kind = kindOf(type)
  if (type.name !== undefined) return `${kind} ${type.name}`
  if (kind === "union") return `[${(type.types ?? []).map((branch) => branch.name ?? kindOf(branch)).join(", ")}]`
  return kind
}
