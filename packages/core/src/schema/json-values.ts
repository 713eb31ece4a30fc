/** What is known of the values that JSON Schemas let through: their types, and all of them where they are listed. */
import type { Conjunct } from "./json-keywords.ts"
import { jsonText } from "./json-text.ts"

const allTypes = ["null", "boolean", "object", "array", "number", "string"]

/** The types that values of all these schemas may have: a number without fraction is `integer`. */
export function typesOf(conjuncts: readonly Conjunct[]): Set<string> {
  let types: readonly string[] = allTypes
  for (const { schema } of conjuncts) {
    const own = schema.type === undefined ? valuesOf(schema)?.map(typeOf) : typeList(schema.type)
    if (own !== undefined) types = both(types, own)
  }
  return new Set(types)
}

function both(a: readonly string[], b: readonly string[]): string[] {
  const within = (type: string, list: readonly string[]): boolean =>
    list.includes(type) || (type === "integer" && list.includes("number"))
  return [...new Set([...a.filter((type) => within(type, b)), ...b.filter((type) => within(type, a))])]
}

/** Integers are numbers to keywords. */
export function kinds(types: ReadonlySet<string>): ReadonlySet<string> {
  return types.has("integer") ? new Set([...types, "number"]) : types
}

/** The writer's schemas once for each type that it may write. */
export function splitTypes(writers: readonly Conjunct[]): Conjunct[][] {
  const document = writers[0]?.document
  if (document === undefined) return []
  return [...typesOf(writers)].map((type) => [...writers, { schema: { type }, document }])
}

/** Whether no value fulfils both: their types differ, or their values, or those of a property that both require. */
export function disjoint(reader: Conjunct, writers: readonly Conjunct[]): boolean {
  if (both([...kinds(typesOf([reader]))], [...kinds(typesOf(writers))]).length === 0) return true
  return writers.some(
    ({ schema }) =>
      apart(valuesOf(reader.schema), valuesOf(schema)) || (onlyObjects(writers) && marked(reader.schema, schema)),
  )
}

function onlyObjects(writers: readonly Conjunct[]): boolean {
  return [...typesOf(writers)].every((type) => type === "object")
}

/** Both give a property values that differ, and the writer requires it. */
function marked(reader: Readonly<Record<string, unknown>>, writer: Readonly<Record<string, unknown>>): boolean {
  const required = Array.isArray(writer.required) ? writer.required : []
  const own = Object(reader.properties) as Record<string, object>
  const other = Object(writer.properties) as Record<string, object>
  return required.some(
    (name) =>
      Object.hasOwn(own, name) &&
      Object.hasOwn(other, name) &&
      apart(valuesOf(Object(own[name])), valuesOf(Object(other[name]))),
  )
}

function apart(a: readonly unknown[] | undefined, b: readonly unknown[] | undefined): boolean {
  if (a === undefined || b === undefined) return false
  const texts = new Set(a.map(text))
  return !b.some((value) => texts.has(text(value)))
}

/** The only values that a schema lets through, where it lists them. */
export function valuesOf(schema: Readonly<Record<string, unknown>>): readonly unknown[] | undefined {
  if (Object.hasOwn(schema, "const")) return [schema.const]
  return Array.isArray(schema.enum) ? schema.enum : undefined
}

function typeOf(value: unknown): string {
  if (value === null) return "null"
  if (Array.isArray(value)) return "array"
  return Number.isInteger(value) ? "integer" : typeof value
}

/** `type` of a schema, always as a list. */
export function typeList(type: unknown): string[] {
  return (Array.isArray(type) ? type : [type]).filter((name) => typeof name === "string")
}

/** Texts of parts of schemas, which are asked for again and again. */
const texts = new WeakMap<object, string>()

/** A value as text that is the same for the same value. */
export function text(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const known = texts.get(value)
  if (known !== undefined) return known
  const made = jsonText(JSON.stringify(value))
  texts.set(value, made)
  return made
}

/** Whether two parts of schemas are the same, as far as they have no references. */
export function plainEqual(a: unknown, b: unknown): boolean {
  if (a === undefined || b === undefined) return a === b
  const own = text(a)
  return own === text(b) && !/"\$(?:dynamicR|recursiveR|r)ef":/.test(own)
}
